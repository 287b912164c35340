# Install, export and packages: a consumer writes find_package(sinter) and links sinter::sinter; `cpack` makes Debian
# packages of a build that was configured with the preset "package".
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(SINTER_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/sinter)
set(cuda_headers "")
if(SINTER_WITH_CUDA)
  set(cuda_headers FILE_SET cuda_headers COMPONENT development)
endif()
install(TARGETS sinter EXPORT sinterTargets
        RUNTIME COMPONENT library
        LIBRARY COMPONENT library NAMELINK_COMPONENT development
        ARCHIVE COMPONENT development
        FILE_SET HEADERS COMPONENT development ${cuda_headers})
get_target_property(sinter_type sinter TYPE)
set(SINTER_IS_STATIC OFF)
if(sinter_type STREQUAL "STATIC_LIBRARY")
  set(SINTER_IS_STATIC ON)
endif()
# Beside the toolkit's own; those that are not built in are empty.
set(SINTER_CUDA_EXTRA_LIBRARIES "")
if(SINTER_WITH_CUDA)
  list(APPEND SINTER_CUDA_EXTRA_LIBRARIES ${SINTER_CUDNN_LIBRARY})
endif()
if(SINTER_WITH_NCCL)
  list(APPEND SINTER_CUDA_EXTRA_LIBRARIES ${SINTER_NCCL_LIBRARY})
endif()
if(SINTER_WITH_NVJPEG)
  list(APPEND SINTER_CUDA_EXTRA_LIBRARIES ${SINTER_NVJPEG_LIBRARY})
endif()
install(EXPORT sinterTargets NAMESPACE sinter:: DESTINATION ${SINTER_CMAKE_DIR} COMPONENT development)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/sinterConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/sinterConfig.cmake INSTALL_DESTINATION ${SINTER_CMAKE_DIR})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/sinterConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/sinterConfig.cmake ${PROJECT_BINARY_DIR}/sinterConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/FindWebP.cmake
              ${PROJECT_SOURCE_DIR}/cmake/FindLibDeflate.cmake
              ${PROJECT_SOURCE_DIR}/cmake/FindOneDnn.cmake
        DESTINATION ${SINTER_CMAKE_DIR} COMPONENT development)

# ---- Debian packages -----------------------------------------------------------------------------------------
# A package runs on other machines than the one that made it, and its files lie where /usr has them; other builds get no
# configuration for cpack.
if(NOT PROJECT_IS_TOP_LEVEL)
  return()
endif()
if(SINTER_NATIVE OR NOT CMAKE_INSTALL_PREFIX STREQUAL "/usr")
  file(REMOVE ${PROJECT_BINARY_DIR}/CPackConfig.cmake)
  return()
endif()
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME sinter)
set(CPACK_PACKAGE_VENDOR Sinter)
set(CPACK_PACKAGE_CONTACT "The Sinter maintainers <maintainers@sinter.invalid>")
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS ON)
# What the programs and the library link is asked of dpkg-shlibdeps; libsinter itself lies in the build folder.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR})
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME libsinter${SINTER_ABI_VERSION})
set(CPACK_COMPONENT_LIBRARY_DESCRIPTION "${PROJECT_DESCRIPTION}: the shared library")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libsinter-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libfmt-dev")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "${PROJECT_DESCRIPTION}: headers and CMake files")
set(CPACK_COMPONENT_DEVELOPMENT_DEPENDS library)
set(CPACK_COMPONENTS_ALL library development)
if(SINTER_BUILD_EXAMPLES)
  list(APPEND CPACK_COMPONENTS_ALL programs)
  set(CPACK_DEBIAN_PROGRAMS_PACKAGE_NAME sinter-programs)
  set(CPACK_DEBIAN_PROGRAMS_PACKAGE_SECTION science)
  set(CPACK_COMPONENT_PROGRAMS_DESCRIPTION "${PROJECT_DESCRIPTION}: example programs, with handwritten digits to train on")
  set(CPACK_COMPONENT_PROGRAMS_DEPENDS library)
endif()
include(CPack)
