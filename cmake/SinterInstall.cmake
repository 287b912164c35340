# Install and export: a consumer writes find_package(sinter) and links sinter::sinter.
include(CMakePackageConfigHelpers)

set(SINTER_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/sinter)
install(TARGETS sinter EXPORT sinterTargets FILE_SET HEADERS)
install(EXPORT sinterTargets NAMESPACE sinter:: DESTINATION ${SINTER_CMAKE_DIR})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/sinterConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/sinterConfig.cmake INSTALL_DESTINATION ${SINTER_CMAKE_DIR})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/sinterConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/sinterConfig.cmake ${PROJECT_BINARY_DIR}/sinterConfigVersion.cmake
        DESTINATION ${SINTER_CMAKE_DIR})
