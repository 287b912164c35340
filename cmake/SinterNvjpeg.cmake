# Finds nvJPEG, through which GPUs with engines for JPEGs decode them. Optional: without it the CPU decodes.
set(SINTER_NVJPEG "AUTO" CACHE STRING "Decode JPEGs on GPUs, through nvJPEG: ON, OFF, or AUTO (where it is found)")
set_property(CACHE SINTER_NVJPEG PROPERTY STRINGS AUTO ON OFF)

set(SINTER_WITH_NVJPEG OFF)
if(NOT SINTER_NVJPEG STREQUAL "OFF" AND SINTER_WITH_CUDA)
  find_path(SINTER_NVJPEG_INCLUDE nvjpeg.h HINTS ${CUDAToolkit_INCLUDE_DIRS} /usr/local/cuda/include)
  # NVIDIA's packages for pip have the library under its full name only.
  find_library(SINTER_NVJPEG_LIBRARY NAMES nvjpeg libnvjpeg.so.${CUDAToolkit_VERSION_MAJOR}
               HINTS ${CUDAToolkit_LIBRARY_DIR} ${SINTER_NVJPEG_INCLUDE}/../lib /usr/local/cuda/lib64 /usr/local/cuda/lib)
  if(SINTER_NVJPEG_INCLUDE AND SINTER_NVJPEG_LIBRARY)
    set(SINTER_WITH_NVJPEG ON)
  endif()
endif()
if(SINTER_NVJPEG STREQUAL "ON" AND NOT SINTER_WITH_NVJPEG)
  message(FATAL_ERROR "SINTER_NVJPEG is ON, which needs the CUDA backend, nvjpeg.h and libnvjpeg (libnvjpeg-dev-<version> of "
                      "NVIDIA's packages); set SINTER_NVJPEG_INCLUDE and SINTER_NVJPEG_LIBRARY if it lies elsewhere")
endif()
