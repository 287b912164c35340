# The headers that are installed: everything that programs and ops outside the tree may include, and nothing else.
# A new public header is listed here; the header ops/<op>/<op>.h of every op is public by its place.
# Configuring fails if a public header includes one that is not, or a header of a library that users need not have.

# For .cpp files.
set(SINTER_PUBLIC_HEADERS
  core/base/device.h
  core/base/dtype.h
  core/base/error.h
  core/file_system/file_system.h
  core/base/float16.h
  core/base/host_device.h
  core/base/int_list.h
  core/base/layout.h
  core/base/log.h
  core/base/shape.h
  core/base/size2d.h
  core/text/printable.h
  core/comm/communication_error.h
  core/comm/communicator.h
  core/comm/process_environment.h
  core/executor/program.h
  core/graph/graph.h
  core/graph/host_effect.h
  core/graph/tracer.h
  core/memory/memory_pool.h
  core/memory/raw_memory.h
  core/memory/workspace.h
  core/op/attributes.h
  core/op/autotune/choose_by_time.h
  core/op/call.h
  core/op/call_observer.h
  core/op/call_tracer.h
  core/op/dispatch.h
  core/op/kernel.h
  core/op/norm_chain.h
  core/op/node.h
  core/op/op_def.h
  core/op/registry.h
  core/profile/profile.h
  core/runtime/backend.h
  core/runtime/event.h
  core/runtime/exclusive_use.h
  core/runtime/random.h
  core/runtime/settings.h
  core/runtime/thread_pool.h
  core/tensor/format.h
  core/tensor/index.h
  core/tensor/storage.h
  core/tensor/tensor.h
  core/tensor/transfer.h

  ops/common/cpu/block_cpu.h
  ops/common/cpu/elementwise_cpu.h
  ops/common/cpu/elementwise_op_cpu.h
  ops/common/elementary_math.h
  ops/common/elementwise_op.h
  ops/common/op_support.h
  ops/common/image_output.h
  ops/conv2d/conv1d.h
  ops/cross_entropy/shard_cross_entropy.h
  ops/norm/activation.h
  ops/norm/group_norm.h
  ops/operators.h
  ops/ops.h
  ops/tensor/closeness.h
  ops/tensor/statistics.h
  ops/upsample/pixel_shuffle.h

  autograd/backward.h
  autograd/differentiate.h
  autograd/grad.h
  autograd/gradcheck.h
  autograd/hook.h

  passes/history/graph_history.h
  passes/pass.h
  passes/pipeline.h

  nn/augment/color_jitter.h
  nn/augment/mixing.h
  nn/augment/policies/aug_mix.h
  nn/augment/policies/auto_augment.h
  nn/augment/policies/three_augment.h
  nn/augment/policies/timm_rand_augment.h
  nn/augment/rand_augment.h
  nn/augment/random_erasing.h
  nn/augment/trivial_augment.h
  nn/checkpoint/checkpoint.h
  nn/checkpoint/model_metadata.h
  nn/checkpoint/pytorch/pytorch_file.h
  nn/checkpoint/safetensors.h
  nn/checkpoint/weights_file.h
  nn/data/augmentation.h
  nn/data/data_loader.h
  nn/data/dataset.h
  nn/data/faces/align.h
  nn/data/faces/augment.h
  nn/data/faces/ijb.h
  nn/data/faces/landmarks.h
  nn/data/faces/text_lines.h
  nn/data/formats/cifar.h
  nn/data/formats/idx.h
  nn/data/formats/image_folder.h
  nn/data/formats/load_image.h
  nn/data/formats/open_dataset.h
  nn/data/image/encode_jpeg.h
  nn/data/image/files/encode_png.h
  nn/data/image/files/image_file.h
  nn/data/image/files/png.h
  nn/data/image/files/webp.h
  nn/data/image/image.h
  nn/data/image/jpeg.h
  nn/data/image/netpbm.h
  nn/data/image/resize.h
  nn/data/make_dataset.h
  nn/data/normalize.h
  nn/data/records/record_dataset.h
  nn/data/records/record_writer.h
  nn/data/records/verification_set.h
  nn/data/sample/frame.h
  nn/data/sample/sample.h
  nn/data/sample_random.h
  nn/data/sampler.h
  nn/data/shards/shard_dataset.h
  nn/data/transforms.h
  nn/export/onnx.h
  nn/export/onnx_call.h
  nn/init/init.h
  nn/init/whitening.h
  nn/job/html/html_report.h
  nn/job/infer_job.h
  nn/job/infer_queue.h
  nn/job/job_trace.h
  nn/job/report/step_forecast.h
  nn/job/train_job.h
  nn/layers/activation.h
  nn/layers/conv2d.h
  nn/layers/conv_transpose2d.h
  nn/layers/linear.h
  nn/layers/norm/batch_norm.h
  nn/layers/norm/group_norm.h
  nn/layers/pool.h
  nn/layers/sequential.h
  nn/layers/simple.h
  nn/layers/upsample.h
  nn/log/curves.h
  nn/log/run_log.h
  nn/log/scalars.h
  nn/loss/adaptive_margin.h
  nn/loss/loss.h
  nn/loss/margin.h
  nn/loss/partial_fc.h
  nn/metrics/identification.h
  nn/metrics/metrics.h
  nn/metrics/roc.h
  nn/metrics/templates.h
  nn/metrics/verification.h
  nn/models/iresnet.h
  nn/models/mobile_face_net.h
  nn/models/resnet.h
  nn/models/resnet_names.h
  nn/models/squeeze_excite.h
  nn/module/clone_scope.h
  nn/module/module.h
  nn/module/variable.h
  nn/nn.h
  nn/optim/adam.h
  nn/optim/ema.h
  nn/optim/grad_scaler.h
  nn/optim/lars_lamb.h
  nn/optim/optimizer.h
  nn/optim/parameter_groups.h
  nn/optim/rmsprop.h
  nn/optim/sgd.h
  nn/parallel/data_parallel.h
  nn/parallel/sync_batch_norm.h
  nn/predict/classifier.h
  nn/predict/feature_extractor.h
  nn/predict/named_model.h
  nn/predict/picture.h
  nn/predict/picture_network.h
  nn/predict/preprocessing.h
  nn/schedule/plateau.h
  nn/schedule/schedule.h
  nn/summary/summary.h
)
file(GLOB op_headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/ops/*/*.h)
# Ops that the library's own parts call: rewrites, optimisers, ranks. ops/ops.h has all others.
set(SINTER_ENGINE_OPS advance_steps all_gather all_reduce grad_norm loss_scale metrics optimizer random_key random_normal sync_batch_norm)
file(READ ops/ops.h op_includes)
foreach(header IN LISTS op_headers)
  if(header MATCHES "^ops/([^/]+)/([^/]+)\\.h$" AND CMAKE_MATCH_1 STREQUAL CMAKE_MATCH_2)
    set(op ${CMAKE_MATCH_1})
    list(APPEND SINTER_PUBLIC_HEADERS ${header})
    string(FIND "${op_includes}" "<sinter/${header}>" found)
    if(found EQUAL -1 AND NOT op IN_LIST SINTER_ENGINE_OPS)
      message(FATAL_ERROR "ops/ops.h lacks ${header}: users call it, or SINTER_ENGINE_OPS in cmake/SinterPublicHeaders.cmake names it")
    endif()
  endif()
endforeach()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/ops/ops.h)

# For .cu files; installed if the library has the CUDA backend.
set(SINTER_PUBLIC_CUDA_HEADERS
  core/cuda/cuda_check.h
  core/cuda/device/device_types.h
  core/cuda/device/launch.h
  ops/common/cuda/elementwise_cuda.h
  ops/common/cuda/elementwise_op_cuda.h
  ops/common/cuda/elementwise_plan.h
  ops/common/cuda/unaligned_pack_cuda.h
)

# Fails if one of `headers` includes a header of Sinter's that is in none of the lists after it, or one that matches
# `foreign`.
function(sinter_check_public headers foreign)
  foreach(header IN LISTS ${headers})
    file(STRINGS ${PROJECT_SOURCE_DIR}/${header} lines REGEX "^ *# *include")
    foreach(line IN LISTS lines)
      if(line MATCHES "<sinter/([^>]+)>|\"([^\"]+)\"")
        set(included ${CMAKE_MATCH_1}${CMAKE_MATCH_2})
        set(found FALSE)
        foreach(list IN LISTS ARGN)
          if(included IN_LIST ${list})
            set(found TRUE)
          endif()
        endforeach()
        if(NOT found)
          message(FATAL_ERROR "${header} is public and includes ${included}, which is not: see cmake/SinterPublicHeaders.cmake")
        endif()
      elseif(foreign AND line MATCHES "${foreign}")
        message(FATAL_ERROR "${header} is public and has '${line}', which its users may lack")
      endif()
    endforeach()
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${header})
  endforeach()
endfunction()
sinter_check_public(SINTER_PUBLIC_HEADERS "<(cu[a-zA-Z_]*\\.h|cuda|cudnn|Eigen/|spdlog/|nlohmann/|CLI/|jpeglib|png|zlib|gloo/|nccl|nvjpeg)"
                    SINTER_PUBLIC_HEADERS)
sinter_check_public(SINTER_PUBLIC_CUDA_HEADERS "<(cudnn|cublas|Eigen/|spdlog/|nlohmann/)"
                    SINTER_PUBLIC_HEADERS SINTER_PUBLIC_CUDA_HEADERS)

# `sinter_headers(<output variable> <list>)`: where they lie below the include root.
function(sinter_headers output headers)
  list(TRANSFORM ${headers} PREPEND ${SINTER_INCLUDE_ROOT}/sinter/ OUTPUT_VARIABLE paths)
  set(${output} ${paths} PARENT_SCOPE)
endfunction()
