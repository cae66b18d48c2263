# etwgpu_flags: the compiler and linker flags that everything shares.
add_library(etwgpu_flags INTERFACE)
# Highway is used as headers, one target per build: what a .wasm or a native build supports is known when it is compiled.
target_compile_definitions(etwgpu_flags INTERFACE HWY_COMPILE_ONLY_STATIC HWY_HEADER_ONLY)
target_compile_options(etwgpu_flags INTERFACE -Wall -Wextra $<$<BOOL:${ETWGPU_WERROR}>:-Werror>)

if(EMSCRIPTEN)
  target_compile_options(etwgpu_flags INTERFACE -msimd128)
  target_link_options(etwgpu_flags INTERFACE -fno-exceptions -fno-rtti
                      $<$<BOOL:${ETWGPU_RELAXED_SIMD}>:-mrelaxed-simd>)
  if(ETWGPU_THREADS)
    target_compile_options(etwgpu_flags INTERFACE -pthread)
    target_link_options(etwgpu_flags INTERFACE -pthread)
  endif()
else()
  find_package(Threads REQUIRED)
  target_link_libraries(etwgpu_flags INTERFACE Threads::Threads ${CMAKE_DL_LIBS})
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    # without AES Highway does not call a machine AVX2
    target_compile_options(etwgpu_flags INTERFACE -march=${ETWGPU_NATIVE_ARCH} -maes -mpclmul)
  endif()
  if(ETWGPU_SANITIZE) # but for the check of objects' types, which needs the RTTI that the runtime does not have
    target_compile_options(etwgpu_flags INTERFACE -fsanitize=${ETWGPU_SANITIZE} -fno-sanitize=vptr
                           -fno-omit-frame-pointer -fno-sanitize-recover=undefined)
    target_link_options(etwgpu_flags INTERFACE -fsanitize=${ETWGPU_SANITIZE})
  endif()
endif()
