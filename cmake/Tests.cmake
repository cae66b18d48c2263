enable_testing()

# etwgpu_dawn: wgpuGetProcAddress of the Dawn that the Python package wgpudawn brings, for programs without Python
add_library(etwgpu_dawn SHARED ${CMAKE_SOURCE_DIR}/tools/dawn/dawn_from_wheel.cpp)
target_include_directories(etwgpu_dawn SYSTEM PUBLIC ${ETWGPU_CACHE}/include)
target_link_libraries(etwgpu_dawn PRIVATE ${CMAKE_DL_LIBS})
set_target_properties(etwgpu_dawn PROPERTIES CXX_VISIBILITY_PRESET hidden)

# etwgpu_tests: every tests/cpp/**/*_test.cpp in one GoogleTest program. Debian has GoogleTest as source.
file(GLOB_RECURSE test_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/cpp/*.cpp)
if(test_sources AND EXISTS /usr/src/googletest/CMakeLists.txt)
  set(INSTALL_GTEST OFF CACHE BOOL "" FORCE)
  set(BUILD_GMOCK ON CACHE BOOL "" FORCE)
  add_subdirectory(/usr/src/googletest ${CMAKE_BINARY_DIR}/googletest EXCLUDE_FROM_ALL SYSTEM)
  if(ETWGPU_SANITIZE)
    target_link_libraries(gtest PUBLIC etwgpu_flags)
  endif()
  add_executable(etwgpu_tests ${test_sources})
  target_link_libraries(etwgpu_tests PRIVATE etwgpu_runtime etwgpu_dawn gmock gtest_main)
  target_compile_options(etwgpu_tests PRIVATE -O1) # what takes time in them is the runtime and the GPU's compiler
  target_compile_definitions(etwgpu_tests PRIVATE ETWGPU_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  add_test(NAME etwgpu_tests COMMAND etwgpu_tests)
endif()

# etwgpu_fuzz: seeded mutations of programs, with any compiler
if(EXISTS ${CMAKE_SOURCE_DIR}/tests/fuzz/CMakeLists.txt)
  add_subdirectory(${CMAKE_SOURCE_DIR}/tests/fuzz ${CMAKE_BINARY_DIR}/fuzz)
endif()
