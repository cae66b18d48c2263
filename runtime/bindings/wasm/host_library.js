// What the module asks of the JavaScript that made it: Module.etwgpuHost, an object with complete() and readSource().
addToLibrary({
  etwgpu_complete: (request, code, message, messageLength, payload, payloadLength) => {
    Module.etwgpuHost.complete(request, code, message, messageLength, payload, payloadLength);
  },
  etwgpu_source_read: (source, requests, count, token) => {
    Module.etwgpuHost.readSource(source, requests, count, token);
  },
});
