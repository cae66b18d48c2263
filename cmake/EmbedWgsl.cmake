# ETWGPU_WGSL_SOURCE: a C++ file with the text of every runtime/**/*.wgsl; its header is generated/wgsl_sources.h.
find_package(Python3 3.11 REQUIRED COMPONENTS Interpreter)
file(GLOB_RECURSE wgsl_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/runtime/*.wgsl)
set(ETWGPU_WGSL_SOURCE ${CMAKE_BINARY_DIR}/generated/wgsl_sources.cpp)
add_custom_command(
  OUTPUT ${ETWGPU_WGSL_SOURCE}
  BYPRODUCTS ${CMAKE_BINARY_DIR}/generated/wgsl_sources.h
  COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/embed_wgsl.py --runtime ${CMAKE_SOURCE_DIR}/runtime
          --out ${CMAKE_BINARY_DIR}/generated ${wgsl_files}
  DEPENDS ${CMAKE_SOURCE_DIR}/tools/embed_wgsl.py ${wgsl_files}
  COMMENT "Embedding WGSL")
