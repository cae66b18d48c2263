# etwgpu_python: the module executorch_webgpu._native, by nanobind from the Python environment, written beside the
# package's Python files so that the package can be used from the source tree.
file(GLOB python_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/runtime/bindings/python/*.cpp)
if(python_sources AND DEFINED ENV{VENV} AND EXISTS "$ENV{VENV}/bin/python")
  set(Python_EXECUTABLE "$ENV{VENV}/bin/python")
  find_package(Python 3.11 REQUIRED COMPONENTS Interpreter Development.Module)
  execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir OUTPUT_VARIABLE nanobind_ROOT
                  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  find_package(nanobind CONFIG REQUIRED)
  nanobind_add_module(etwgpu_python NB_STATIC ${python_sources})
  set_target_properties(etwgpu_python PROPERTIES
    OUTPUT_NAME _native
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_SOURCE_DIR}/python/executorch_webgpu)
  target_link_libraries(etwgpu_python PRIVATE etwgpu_runtime)
  # read before the module is loaded: a processor that lacks its instructions would end the process
  file(CONFIGURE OUTPUT ${CMAKE_SOURCE_DIR}/python/executorch_webgpu/_native_arch.txt
       CONTENT "${CMAKE_SYSTEM_PROCESSOR} ${ETWGPU_NATIVE_ARCH}\n")
endif()
