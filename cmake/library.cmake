# The installed library: the layers as one archive `gigaknn`, with headers and gigaknnConfig.cmake.
#
#   cmake --install build/release --prefix DIR
#   find_package(gigaknn)  target_link_libraries(mine gigaknn::gigaknn)
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
if(GIGAKNN_SANITIZE)
  target_link_options(gigaknn PUBLIC $<BUILD_INTERFACE:-fsanitize=${GIGAKNN_SANITIZE}>)
endif()

# A static archive does not carry what it links to: its user links it, so the config file finds it again.
# `TBB::tbb` asks for find_package(TBB), `PkgConfig::HWY` for the module named here; anything without `::`
# (a path, -lname) is passed on as it is.
set(pkg_config_module_HWY libhwy)
get_property(foreign_links GLOBAL PROPERTY GIGAKNN_FOREIGN_LINKS)
list(REMOVE_DUPLICATES foreign_links)
set(GIGAKNN_FIND_DEPENDENCIES "")
foreach(link ${foreign_links})
  if(link MATCHES "^PkgConfig::(.+)$")
    set(prefix ${CMAKE_MATCH_1})
    set(module ${pkg_config_module_${prefix}})
    if(NOT module)
      message(FATAL_ERROR "cmake/library.cmake: name the pkg-config module of ${link}")
    endif()
    find_package(PkgConfig REQUIRED)
    pkg_check_modules(${prefix} REQUIRED IMPORTED_TARGET ${module})
    string(APPEND GIGAKNN_FIND_DEPENDENCIES
      "find_dependency(PkgConfig)\npkg_check_modules(${prefix} REQUIRED IMPORTED_TARGET ${module})\n")
  elseif(link MATCHES "^(.+)::")
    set(package ${CMAKE_MATCH_1})
    find_package(${package} REQUIRED)
    string(APPEND GIGAKNN_FIND_DEPENDENCIES "find_dependency(${package})\n")
  endif()
endforeach()
# Private in the build tree, where the layers have them already; $<LINK_ONLY> in the exported target.
target_link_libraries(gigaknn PRIVATE ${foreign_links})

install(TARGETS gigaknn EXPORT gigaknnTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/gigaknn DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.hpp")
set(config_folder ${CMAKE_INSTALL_LIBDIR}/cmake/gigaknn)
install(EXPORT gigaknnTargets NAMESPACE gigaknn:: DESTINATION ${config_folder})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/gigaknnConfig.cmake.in
  ${PROJECT_BINARY_DIR}/gigaknnConfig.cmake INSTALL_DESTINATION ${config_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/gigaknnConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/gigaknnConfig.cmake ${PROJECT_BINARY_DIR}/gigaknnConfigVersion.cmake
  DESTINATION ${config_folder})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
