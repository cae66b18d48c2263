# etwgpu_schemas: C++ headers of the flatbuffers schemas, by the flatc that belongs to the flatbuffers headers in use.
#   generated/graph_generated.h        our delegate payload (schema/graph.fbs)
#   generated/program_generated.h      .pte    generated/flat_tensor_generated.h   .ptd
#   generated/scalar_type_generated.h  included by both
# The executorch schemas come from the Python package, so that they are those of the exporter.
# The executorch package brings a flatc of another release into the Python environment, so the system's goes first.
find_program(ETWGPU_FLATC flatc PATHS /usr/bin /usr/local/bin /opt/homebrew/bin NO_DEFAULT_PATH)
find_program(ETWGPU_FLATC flatc REQUIRED)
add_custom_target(etwgpu_schemas)

function(etwgpu_generate_header schema)
  if(NOT EXISTS ${schema})
    message(WARNING "no ${schema}: its header is not generated")
    return()
  endif()
  get_filename_component(name ${schema} NAME_WE)
  set(header ${CMAKE_BINARY_DIR}/generated/${name}_generated.h)
  # one call per schema: together, flatc would take the files of one as included by the other
  add_custom_command(
    OUTPUT ${header}
    COMMAND ${ETWGPU_FLATC} --cpp --scoped-enums -o ${CMAKE_BINARY_DIR}/generated ${schema}
    DEPENDS ${schema}
    COMMENT "flatc ${name}.fbs")
  add_custom_target(etwgpu_schema_${name} DEPENDS ${header})
  add_dependencies(etwgpu_schemas etwgpu_schema_${name})
endfunction()

etwgpu_generate_header(${CMAKE_SOURCE_DIR}/schema/graph.fbs)
foreach(name program scalar_type flat_tensor)
  set(found "")
  if(ETWGPU_EXECUTORCH_SCHEMA_DIR)
    # flat_tensor.fbs has had two homes in the package
    file(GLOB_RECURSE found ${ETWGPU_EXECUTORCH_SCHEMA_DIR}/${name}.fbs)
    if(NOT found)
      get_filename_component(package ${ETWGPU_EXECUTORCH_SCHEMA_DIR} DIRECTORY)
      file(GLOB_RECURSE found ${package}/${name}.fbs)
    endif()
  endif()
  list(APPEND found "${name}.fbs of executorch (set ETWGPU_EXECUTORCH_SCHEMA_DIR)")
  list(GET found 0 schema)
  etwgpu_generate_header("${schema}")
endforeach()
