# etwgpu_wasm: etwgpu.mjs and etwgpu.wasm in the build folder, an ES module factory for web pages, workers and Node.
# Exported functions: those marked EMSCRIPTEN_KEEPALIVE, and the names in runtime/bindings/wasm/exports.txt (one a line,
# with the leading underscore).
set(wasm_dir ${CMAKE_SOURCE_DIR}/runtime/bindings/wasm)
file(GLOB wasm_sources CONFIGURE_DEPENDS ${wasm_dir}/*.cpp)
file(GLOB wasm_libraries CONFIGURE_DEPENDS ${wasm_dir}/*.js)
if(wasm_sources)
  add_executable(etwgpu_wasm ${wasm_sources})
  set_target_properties(etwgpu_wasm PROPERTIES OUTPUT_NAME etwgpu SUFFIX .mjs)
  target_compile_options(etwgpu_wasm PRIVATE -fno-exceptions -fno-rtti -Oz)
  target_link_libraries(etwgpu_wasm PRIVATE etwgpu_runtime)
  # at every build: the script looks at the sources and touches the header only if they changed
  add_custom_target(etwgpu_build_id
    COMMAND ${CMAKE_COMMAND} -DROOT=${CMAKE_SOURCE_DIR} -DOUT=${CMAKE_BINARY_DIR}/generated/build_id.h
            -P ${CMAKE_SOURCE_DIR}/cmake/BuildId.cmake
    BYPRODUCTS ${CMAKE_BINARY_DIR}/generated/build_id.h VERBATIM)
  add_dependencies(etwgpu_wasm etwgpu_build_id)
  set(methods HEAPU8,HEAP32,HEAPU32,HEAPF32,HEAPF64,UTF8ToString,stringToUTF8,lengthBytesUTF8,wasmMemory)
  # Linked for size, with the small malloc: SmolLM2's prefill and decoding take the same CPU time, and it is 6.5 KB less.
  target_link_options(etwgpu_wasm PRIVATE
    -Oz -sMALLOC=emmalloc --no-entry -sMODULARIZE -sEXPORT_ES6 -sENVIRONMENT=web,worker,node -sFILESYSTEM=0
    -sDYNAMIC_EXECUTION=0 # pages with a strict content security policy
    -sBINARYEN_EXTRA_PASSES=-Oz,--converge # once more: 0.9 KB less
    -sALLOW_MEMORY_GROWTH -sMAXIMUM_MEMORY=4GB -sSTACK_SIZE=256KB
    -sINCOMING_MODULE_JS_API=wasmBinary,wasmMemory,instantiateWasm,locateFile,print,printErr,onAbort,mainScriptUrlOrBlob)
  if(ETWGPU_THREADS)
    # The WebGPU objects live in the worker that makes the module; threads only compute beside it. Their workers are made
    # before the module, by web/src/worker/threads.ts, and put into its pool.
    string(APPEND methods ",PThread")
    # growth of a shared memory makes JavaScript check its views at each access: only our library code is concerned
    target_link_options(etwgpu_wasm PRIVATE -Wno-pthreads-mem-growth)
  endif()
  target_link_options(etwgpu_wasm PRIVATE -sEXPORTED_RUNTIME_METHODS=${methods})
  set(exports ${wasm_dir}/exports.txt)
  if(EXISTS ${exports})
    target_link_options(etwgpu_wasm PRIVATE -sEXPORTED_FUNCTIONS=@${exports})
    set_property(TARGET etwgpu_wasm APPEND PROPERTY LINK_DEPENDS ${exports})
  else()
    target_link_options(etwgpu_wasm PRIVATE -sEXPORTED_FUNCTIONS=_malloc,_free)
  endif()
  if(ETWGPU_USE_EMDAWNWEBGPU)
    target_compile_options(etwgpu_runtime PUBLIC --use-port=emdawnwebgpu)
    target_link_options(etwgpu_wasm PRIVATE --use-port=emdawnwebgpu)
  endif()
  foreach(library ${wasm_libraries})
    target_link_options(etwgpu_wasm PRIVATE "SHELL:--js-library ${library}")
    set_property(TARGET etwgpu_wasm APPEND PROPERTY LINK_DEPENDS ${library})
  endforeach()
endif()
