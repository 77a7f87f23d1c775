# Writes OUTPUT, a header with the commit of SOURCE, and PYTHON_OUTPUT, a module with it, where they have changed. Run at every build: a library must not name
# the commit that was there when CMake last configured. "-dirty" tells that tracked files differ from it.
cmake_minimum_required(VERSION 3.20)
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=*
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT commit)
  set(commit unknown)
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "#define GIGAKNN_COMMIT \"@commit@\"\n" @ONLY)
file(CONFIGURE OUTPUT ${PYTHON_OUTPUT} CONTENT "commit = \"@commit@\"\n" @ONLY)
