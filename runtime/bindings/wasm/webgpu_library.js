// Emscripten --js-library: the WebGPU objects behind webgpu_wasm.cpp. `etwgpu` is a table of objects with reference counts; the
// etwgpu_js_* imports take and give indices into it. Pointers are shifted with >>>, since they may lie above 2 GiB.
//
// For the JavaScript around the module:
//   Module.etwgpuBuffer(handle)        the GPUBuffer of a handle: weights stream into it past the Wasm heap
//   Module.etwgpuImportDevice(device)  a handle for a GPUDevice of the page; C++ takes the reference over
//   Module.etwgpuImportBuffer(buffer)  a handle for a GPUBuffer of the page, to be released; of one that is in the table, its
//   Module.etwgpuRelease(handle)
//   Module.etwgpuGpuStats()            {live: objects in the table, emptySubmits: of the poll below}
const library = {
  $etwgpu__deps: ['$UTF8ToString', '$stringToNewUTF8'],
  $etwgpu__postset: `
    Module['etwgpuBuffer'] = (handle) => etwgpu.objects[handle];
    Module['etwgpuImportDevice'] = (device) => etwgpu.add(device);
    Module['etwgpuImportBuffer'] = (buffer) => {
      const known = etwgpu.objects.indexOf(buffer);
      if (known < 0) return etwgpu.add(buffer);
      etwgpu.counts[known]++;
      return known;
    };
    Module['etwgpuRelease'] = (handle) => etwgpu.release(handle);
    Module['etwgpuGpuStats'] = () => ({ live: etwgpu.objects.length - 1 - etwgpu.free.length, emptySubmits: etwgpu.emptySubmits });`,
  $etwgpu: {
    objects: [null],
    counts: [0],
    free: [],
    devices: new WeakMap(), // of a buffer
    errorOps: new WeakMap(), // of a device
    waiting: new Map(), // device → {maps in flight, since: when the last one ended}
    emptySubmits: 0,
    // Numbers of WGPUFeatureName.
    features: {
      9: 'timestamp-query',
      11: 'shader-f16',
      18: 'subgroups',
      0x50034: 'chromium-experimental-subgroup-matrix',
    },
    matrixTypes: ['', 'f32', 'f16', 'u32', 'i32', 'u8', 'i8'], // WGPUSubgroupMatrixComponentType
    limits: [
      'maxStorageBuffersPerShaderStage',
      'maxStorageBufferBindingSize',
      'maxBufferSize',
      'maxComputeWorkgroupStorageSize',
      'maxComputeInvocationsPerWorkgroup',
      'maxComputeWorkgroupSizeX',
      'maxComputeWorkgroupSizeY',
      'maxComputeWorkgroupSizeZ',
      'maxComputeWorkgroupsPerDimension',
    ],
    bufferTypes: { 2: 'uniform', 3: 'storage', 4: 'read-only-storage' }, // WGPUBufferBindingType
    errorFilters: ['', 'validation', 'out-of-memory', 'internal'], // WGPUErrorFilter

    add(object) {
      const handle = etwgpu.free.pop() ?? etwgpu.objects.length;
      etwgpu.objects[handle] = object;
      etwgpu.counts[handle] = 1;
      return handle;
    },
    release(handle) {
      if (--etwgpu.counts[handle] > 0) return;
      etwgpu.objects[handle] = null;
      etwgpu.free.push(handle);
    },
    // WebGPU reports most errors to scopes, but some are thrown: a size beyond 2^53, a mapped buffer too large.
    create(device, make) {
      try {
        return etwgpu.add(make(etwgpu.objects[device]));
      } catch (error) {
        etwgpu.report(device, error);
        return 0;
      }
    },
    report(device, error) {
      const op = etwgpu.errorOps.get(etwgpu.objects[device]);
      if (op) etwgpu.done(op, etwgpu.errorType(error), device, error);
    },
    text(pointer, length) {
      return length ? UTF8ToString(pointer >>> 0, length) : '';
    },
    // WGPUErrorType
    errorType(error) {
      if (!error) return 1;
      if (error instanceof RangeError) return 3;
      return { GPUValidationError: 2, GPUOutOfMemoryError: 3, GPUInternalError: 4 }[error.constructor.name] ?? 5;
    },
    done(op, status, handle, error) {
      const message = error == null ? '' : String(error.message ?? error);
      _etwgpu_webgpu_done(op, status, handle, message ? stringToNewUTF8(message) : 0);
    },
    watch(device, handle, lostOp, errorOp) {
      const onError = (event) => {
        event.preventDefault?.();
        etwgpu.done(errorOp, etwgpu.errorType(event.error), handle, event.error);
      };
      device.addEventListener?.('uncapturederror', onError);
      etwgpu.errorOps.set(device, errorOp);
      device.lost.then((info) => {
        device.removeEventListener?.('uncapturederror', onError);
        etwgpu.errorOps.delete(device);
        etwgpu.done(lostOp, info.reason === 'destroyed' ? 2 : 1, handle, info);
      });
    },
    // Firefox (100 ms) and Chrome (2 ms) notice late that a buffer can be mapped, unless something is submitted: every 0.1
    // ms while something may become ready soon, then the rarer the longer it takes. So a tenth of the time is lost at most,
    // and a software adapter is not kept busy by polling. Timers are too coarse for the former.
    startPolling(device) {
      const waiting = etwgpu.waiting.get(device);
      if (waiting) {
        waiting.maps++;
        return;
      }
      const state = { maps: 1, since: performance.now(), polled: performance.now() };
      etwgpu.waiting.set(device, state);
      const { port1, port2 } = new MessageChannel();
      const again = () => {
        const waited = performance.now() - state.since;
        if (waited < 3) port2.postMessage(0);
        else setTimeout(tick, Math.max(1, waited / 10));
      };
      const tick = () => {
        if (state.maps === 0) {
          port1.close();
          return;
        }
        const now = performance.now();
        if (now - state.polled >= 0.1) {
          state.polled = now;
          etwgpu.emptySubmits++;
          device.queue.submit([]);
        }
        again();
      };
      port1.onmessage = tick;
      again();
    },
    stopPolling(device) {
      const state = etwgpu.waiting.get(device);
      state.since = performance.now();
      if (--state.maps === 0) etwgpu.waiting.delete(device);
    },
  },

  etwgpu_js_retain: (handle) => {
    etwgpu.counts[handle]++;
  },
  etwgpu_js_release: (handle) => etwgpu.release(handle),
  etwgpu_js_destroy: (handle) => etwgpu.objects[handle].destroy(),

  // ---- adapter and device
  etwgpu_js_request_adapter: (op, power, fallback) => {
    const gpu = globalThis.navigator?.gpu;
    const options = { powerPreference: power === 1 ? 'low-power' : power === 2 ? 'high-performance' : undefined };
    if (fallback) options.forceFallbackAdapter = true;
    Promise.resolve(gpu?.requestAdapter(options)).then(
      (adapter) => {
        if (adapter) etwgpu.done(op, 1, etwgpu.add(adapter));
        else etwgpu.done(op, 3, 0, gpu ? 'the browser has none for this machine' : 'this browser has no WebGPU');
      },
      (error) => etwgpu.done(op, 4, 0, error),
    );
  },
  etwgpu_js_features: (handle, out, capacity) => {
    const has = etwgpu.objects[handle].features;
    const known = Object.keys(etwgpu.features).filter((number) => has.has(etwgpu.features[number]));
    known.slice(0, capacity).forEach((number, i) => {
      HEAPU32[(out >>> 2) + i] = +number;
    });
    return Math.min(known.length, capacity);
  },
  etwgpu_js_limits: (handle, out) => {
    const limits = etwgpu.objects[handle].limits;
    etwgpu.limits.forEach((name, i) => {
      HEAPF64[(out >>> 3) + i] = limits[name] ?? 0;
    });
  },
  etwgpu_js_info: (handle, sizes) => {
    const object = etwgpu.objects[handle];
    const info = object.info ?? object.adapterInfo ?? {};
    HEAPU32[sizes >>> 2] = info.subgroupMinSize ?? 0;
    HEAPU32[(sizes >>> 2) + 1] = info.subgroupMaxSize ?? 0;
    HEAPU32[(sizes >>> 2) + 2] = +Module.etwgpuHost.isSoftware(info);
    return stringToNewUTF8(
      [info.vendor, info.architecture, info.device, info.description].map((x) => x ?? '').join('\n'),
    );
  },
  // 5 words each: WGPUSubgroupMatrixConfig
  etwgpu_js_matrix_configs: (handle, out, capacity) => {
    const object = etwgpu.objects[handle];
    const configs = [...((object.info ?? object.adapterInfo)?.subgroupMatrixConfigs ?? [])].slice(0, capacity);
    configs.forEach(({ componentType, resultComponentType, M, N, K }, i) => {
      const types = [componentType, resultComponentType].map((type) => Math.max(0, etwgpu.matrixTypes.indexOf(type)));
      HEAPU32.set([...types, M, N, K], (out >>> 2) + 5 * i);
    });
    return configs.length;
  },
  etwgpu_js_request_device: (op, adapter, features, count, limits, lostOp, errorOp, label, labelLength) => {
    const requiredLimits = {};
    etwgpu.limits.forEach((name, i) => {
      const value = HEAPF64[(limits >>> 3) + i];
      if (value >= 0) requiredLimits[name] = value;
    });
    const requiredFeatures = Array.from(
      HEAPU32.subarray(features >>> 2, (features >>> 2) + count),
      (n) => etwgpu.features[n],
    );
    etwgpu.objects[adapter]
      .requestDevice({ label: etwgpu.text(label, labelLength), requiredFeatures, requiredLimits })
      .then(
        (device) => {
          const handle = etwgpu.add(device);
          etwgpu.watch(device, handle, lostOp, errorOp);
          etwgpu.done(op, 1, handle);
        },
        (error) => etwgpu.done(op, 3, 0, error),
      );
  },
  etwgpu_js_watch_device: (handle, lostOp, errorOp) => etwgpu.watch(etwgpu.objects[handle], handle, lostOp, errorOp),
  etwgpu_js_queue: (device) => etwgpu.add(etwgpu.objects[device].queue),
  etwgpu_js_push_error_scope: (device, filter) => etwgpu.objects[device].pushErrorScope(etwgpu.errorFilters[filter]),
  etwgpu_js_pop_error_scope: (op, device) => {
    etwgpu.objects[device].popErrorScope().then(
      (error) => etwgpu.done(op, etwgpu.errorType(error), 0, error),
      () => etwgpu.done(op, 1, 0), // the device is lost, which its own promise reports
    );
  },

  // ---- buffers and queue
  etwgpu_js_create_buffer: (device, size, usage, label, labelLength) => {
    const handle = etwgpu.create(device, (d) =>
      d.createBuffer({ label: etwgpu.text(label, labelLength), size, usage }),
    );
    if (handle) etwgpu.devices.set(etwgpu.objects[handle], etwgpu.objects[device]);
    return handle;
  },
  etwgpu_js_map: (op, handle, mode, offset, size) => {
    const buffer = etwgpu.objects[handle];
    const device = etwgpu.devices.get(buffer);
    const mapped = buffer.mapAsync(mode, offset, size);
    if (device) etwgpu.startPolling(device);
    const finish = (status, error) => {
      if (device) etwgpu.stopPolling(device);
      etwgpu.done(op, status, 0, error);
    };
    mapped.then(
      () => finish(1),
      (error) => finish(error?.name === 'AbortError' ? 4 : 3, error),
    );
  },
  etwgpu_js_read_mapped: (handle, offset, target, size) => {
    try {
      HEAPU8.set(new Uint8Array(etwgpu.objects[handle].getMappedRange(offset, size)), target >>> 0);
      return 1;
    } catch {
      return 0;
    }
  },
  etwgpu_js_unmap: (handle) => etwgpu.objects[handle].unmap(),
  etwgpu_js_write_buffer: (queue, buffer, offset, data, size) => {
    const at = data >>> 0;
    const { buffer: memory } = HEAPU8;
    // Browsers take no views of memory that is shared or can be resized, and Node's WebGPU crashes on them.
    if (memory instanceof ArrayBuffer && !memory.resizable)
      etwgpu.objects[queue].writeBuffer(etwgpu.objects[buffer], offset, memory, at, size);
    else etwgpu.objects[queue].writeBuffer(etwgpu.objects[buffer], offset, HEAPU8.slice(at, at + size));
  },
  etwgpu_js_submit: (queue, commands) => etwgpu.objects[queue].submit([etwgpu.objects[commands]]),
  etwgpu_js_work_done: (op, queue) => {
    etwgpu.objects[queue].onSubmittedWorkDone().then(
      () => etwgpu.done(op, 1, 0),
      (error) => etwgpu.done(op, 3, 0, error),
    );
  },

  // ---- pipelines and bind groups
  etwgpu_js_create_module: (device, code, length, label, labelLength) =>
    etwgpu.create(device, (d) =>
      d.createShaderModule({ label: etwgpu.text(label, labelLength), code: etwgpu.text(code, length) }),
    ),
  etwgpu_js_create_group_layout: (device, types, count) =>
    etwgpu.create(device, (d) =>
      d.createBindGroupLayout({
        entries: Array.from(HEAP32.subarray(types >>> 2, (types >>> 2) + count), (type, binding) => ({
          binding,
          visibility: 4, // GPUShaderStage.COMPUTE
          buffer: { type: etwgpu.bufferTypes[type] },
        })),
      }),
    ),
  etwgpu_js_create_pipeline_layout: (device, layout) =>
    etwgpu.create(device, (d) => d.createPipelineLayout({ bindGroupLayouts: [etwgpu.objects[layout]] })),
  etwgpu_js_create_group: (device, layout, pointer, count) =>
    etwgpu.create(device, (d) => {
      const entries = [];
      for (let binding = 0, at = pointer >>> 3; binding < count; binding++, at += 3) {
        const buffer = etwgpu.objects[HEAPF64[at]];
        entries.push({ binding, resource: { buffer, offset: HEAPF64[at + 1], size: HEAPF64[at + 2] } });
      }
      return d.createBindGroup({ layout: etwgpu.objects[layout], entries });
    }),
  etwgpu_js_create_pipeline: (op, device, layout, module, entry, entryLength, label, labelLength) => {
    const descriptor = {
      label: etwgpu.text(label, labelLength),
      layout: etwgpu.objects[layout],
      compute: { module: etwgpu.objects[module], entryPoint: etwgpu.text(entry, entryLength) },
    };
    if (!op) return etwgpu.create(device, (d) => d.createComputePipeline(descriptor));
    etwgpu.objects[device].createComputePipelineAsync(descriptor).then(
      (pipeline) => etwgpu.done(op, 1, etwgpu.add(pipeline)),
      (error) => etwgpu.done(op, error?.reason === 'validation' ? 3 : 4, 0, error),
    );
    return 0;
  },

  // ---- commands
  etwgpu_js_create_encoder: (device) => etwgpu.add(etwgpu.objects[device].createCommandEncoder()),
  etwgpu_js_begin_pass: (encoder, querySet, begin, end) => {
    const timestampWrites = querySet && {
      querySet: etwgpu.objects[querySet],
      beginningOfPassWriteIndex: begin,
      endOfPassWriteIndex: end,
    };
    return etwgpu.add(etwgpu.objects[encoder].beginComputePass(timestampWrites ? { timestampWrites } : undefined));
  },
  etwgpu_js_copy: (encoder, source, sourceOffset, target, targetOffset, size) =>
    etwgpu.objects[encoder].copyBufferToBuffer(
      etwgpu.objects[source],
      sourceOffset,
      etwgpu.objects[target],
      targetOffset,
      size,
    ),
  etwgpu_js_clear: (encoder, buffer, offset, size) =>
    etwgpu.objects[encoder].clearBuffer(etwgpu.objects[buffer], offset, size),
  etwgpu_js_create_query_set: (device, count) =>
    etwgpu.create(device, (d) => d.createQuerySet({ type: 'timestamp', count })),
  etwgpu_js_resolve: (encoder, querySet, first, count, buffer, offset) =>
    etwgpu.objects[encoder].resolveQuerySet(etwgpu.objects[querySet], first, count, etwgpu.objects[buffer], offset),
  etwgpu_js_finish: (encoder) => etwgpu.add(etwgpu.objects[encoder].finish()),
  etwgpu_js_set_pipeline: (pass, pipeline) => etwgpu.objects[pass].setPipeline(etwgpu.objects[pipeline]),
  etwgpu_js_set_group: (pass, index, group) => etwgpu.objects[pass].setBindGroup(index, etwgpu.objects[group]),
  etwgpu_js_dispatch: (pass, x, y, z) => etwgpu.objects[pass].dispatchWorkgroups(x, y, z),
  etwgpu_js_end_pass: (pass) => etwgpu.objects[pass].end(),
  // A whole list of DispatchCommand (runtime/webgpu/commands.h): pipeline, bind group, x, y, z.
  etwgpu_js_replay: (pass, commands, count) => {
    const { objects } = etwgpu;
    const encoder = objects[pass];
    const words = HEAPU32.subarray(commands >>> 2, (commands >>> 2) + 5 * count);
    let pipeline = 0;
    for (let i = 0; i < words.length; i += 5) {
      if (words[i] !== pipeline) encoder.setPipeline(objects[(pipeline = words[i])]);
      encoder.setBindGroup(0, objects[words[i + 1]]);
      encoder.dispatchWorkgroups(words[i + 2], words[i + 3], words[i + 4]);
    }
  },
};
for (const name of Object.keys(library)) {
  if (name.startsWith('etwgpu_js_')) library[`${name}__deps`] = ['$etwgpu'];
}
addToLibrary(library);
