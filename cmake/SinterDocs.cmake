# The target `sinter_docs` (`docs` for short, where Sinter is not a part of another project): the API reference of the public headers and the pages of docs/, by Doxygen, in <build>/docs/html.
# A warning is an error: what a docstring says must hold together.
find_package(Doxygen QUIET)
if(NOT DOXYGEN_FOUND)
  return()
endif()
set(SINTER_DOCS_OUTPUT ${PROJECT_BINARY_DIR}/docs)
set(inputs ${SINTER_PUBLIC_HEADERS} README.md CONTRIBUTING.md CHANGELOG.md SECURITY.md benchmarks/README.md
           examples/data/digits/README.md examples/recipes/README.md)
file(GLOB pages CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/docs/*.md ${PROJECT_SOURCE_DIR}/docs/kernels/*.md)
list(TRANSFORM inputs PREPEND ${PROJECT_SOURCE_DIR}/)
list(TRANSFORM pages PREPEND ${PROJECT_SOURCE_DIR}/)
list(JOIN inputs " " inputs)
list(JOIN pages " " pages)
set(SINTER_DOCS_INPUT "${inputs} ${pages}")
configure_file(${PROJECT_SOURCE_DIR}/docs/Doxyfile.in ${PROJECT_BINARY_DIR}/Doxyfile @ONLY)
file(MAKE_DIRECTORY ${SINTER_DOCS_OUTPUT})
add_custom_target(sinter_docs COMMAND ${DOXYGEN_EXECUTABLE} ${PROJECT_BINARY_DIR}/Doxyfile
                  COMMENT "The API reference: ${SINTER_DOCS_OUTPUT}/html/index.html" VERBATIM)
if(PROJECT_IS_TOP_LEVEL)
  add_custom_target(docs DEPENDS sinter_docs)
endif()
