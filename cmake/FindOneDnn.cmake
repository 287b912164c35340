# oneDNN 2.x, whose own CMake file asks for OpenCL: the target OneDnn::dnnl, to link, with the OpenMP that it runs on. Its headers
# are in OneDnn_INCLUDE_DIR. Version 3 has other functions.
find_path(OneDnn_INCLUDE_DIR oneapi/dnnl/dnnl.hpp)
find_library(OneDnn_LIBRARY dnnl)
mark_as_advanced(OneDnn_INCLUDE_DIR OneDnn_LIBRARY)
if(OneDnn_INCLUDE_DIR)
  file(STRINGS ${OneDnn_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h onednn_version REGEX "define DNNL_VERSION_(MAJOR|MINOR|PATCH)")
  string(REGEX REPLACE "[^0-9]+([0-9]+)[^0-9]+([0-9]+)[^0-9]+([0-9]+).*" "\\1.\\2.\\3" OneDnn_VERSION "${onednn_version}")
  # Built for other threads than OpenMP's, it cannot be kept to one.
  file(STRINGS ${OneDnn_INCLUDE_DIR}/oneapi/dnnl/dnnl_config.h OneDnn_RUNS_ON_OPENMP REGEX "define DNNL_CPU_THREADING_RUNTIME +DNNL_RUNTIME_OMP")
  if(NOT OneDnn_VERSION VERSION_LESS 3)
    unset(OneDnn_RUNS_ON_OPENMP)
  endif()
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(OneDnn REQUIRED_VARS OneDnn_LIBRARY OneDnn_INCLUDE_DIR OneDnn_RUNS_ON_OPENMP
                                  VERSION_VAR OneDnn_VERSION)
if(OneDnn_FOUND AND NOT TARGET OneDnn::dnnl)
  add_library(OneDnn::dnnl UNKNOWN IMPORTED)
  set_target_properties(OneDnn::dnnl PROPERTIES IMPORTED_LOCATION ${OneDnn_LIBRARY} INTERFACE_LINK_LIBRARIES gomp)
endif()
