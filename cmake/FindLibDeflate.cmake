# libdeflate, whose own CMake file Debian 12 does not ship: the target LibDeflate::deflate, to link. Its header is in
# LibDeflate_INCLUDE_DIR, for the one file that includes it: a folder of the whole target would be in every object's flags.
find_path(LibDeflate_INCLUDE_DIR libdeflate.h)
find_library(LibDeflate_LIBRARY deflate)
mark_as_advanced(LibDeflate_INCLUDE_DIR LibDeflate_LIBRARY)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibDeflate REQUIRED_VARS LibDeflate_LIBRARY LibDeflate_INCLUDE_DIR)
if(LibDeflate_FOUND AND NOT TARGET LibDeflate::deflate)
  add_library(LibDeflate::deflate UNKNOWN IMPORTED)
  set_target_properties(LibDeflate::deflate PROPERTIES IMPORTED_LOCATION ${LibDeflate_LIBRARY})
endif()
