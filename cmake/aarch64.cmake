# Toolchain of the `aarch64` preset: Debian's cross compiler, libraries from build/aarch64-sysroot (made by
# tools/aarch64_sysroot), tests under qemu-user.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

get_filename_component(sysroot ${CMAKE_CURRENT_LIST_DIR}/../build/aarch64-sysroot ABSOLUTE)
set(libraries ${sysroot}/usr/lib/aarch64-linux-gnu)
# Not CMAKE_SYSROOT: the C library, its headers and libstdc++ are the cross compiler's own.
set(CMAKE_FIND_ROOT_PATH ${sysroot} /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_LIBDIR} ${libraries}/pkgconfig:${sysroot}/usr/share/pkgconfig)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${sysroot})

# What is found as a plain -lname, and the libraries that libraries need.
set(CMAKE_CXX_STANDARD_INCLUDE_DIRECTORIES ${sysroot}/usr/include ${sysroot}/usr/include/aarch64-linux-gnu)
set(library_folders ${libraries})
set(link_flags)
foreach(folder ${library_folders})
  string(APPEND link_flags " -L${folder} -Wl,-rpath-link,${folder}")
endforeach()
set(CMAKE_EXE_LINKER_FLAGS_INIT "${link_flags}")
set(CMAKE_SHARED_LINKER_FLAGS_INIT "${link_flags}")

find_program(QEMU_AARCH64 NAMES qemu-aarch64 qemu-aarch64-static)
string(JOIN ":" library_path ${library_folders} /usr/aarch64-linux-gnu/lib)
set(CMAKE_CROSSCOMPILING_EMULATOR
  ${QEMU_AARCH64};-L;/usr/aarch64-linux-gnu;-E;LD_LIBRARY_PATH=${library_path})
