# The installed library: the layers as one archive `gigaknn`, with headers and gigaknnConfig.cmake.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
get_property(layers GLOBAL PROPERTY GIGAKNN_LAYERS)
set(layer_objects)
foreach(layer ${layers})
  list(APPEND layer_objects $<TARGET_OBJECTS:${layer}>)
endforeach()
add_library(gigaknn STATIC ${layer_objects})
add_library(gigaknn::gigaknn ALIAS gigaknn)
set_target_properties(gigaknn PROPERTIES LINKER_LANGUAGE CXX)
target_compile_features(gigaknn PUBLIC cxx_std_20)
target_include_directories(gigaknn PUBLIC
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
