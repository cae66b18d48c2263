// What the module asks of the JavaScript that made it: Module.etwgpuHost, an object with complete(), readSource(),
// token() and pause().
addToLibrary({
  etwgpu_complete: (request, code, message, messageLength, payload, payloadLength) => {
    Module.etwgpuHost.complete(request, code, message, messageLength, payload, payloadLength);
  },
  etwgpu_source_read: (source, requests, count, token) => {
    Module.etwgpuHost.readSource(source, requests, count, token);
  },
  etwgpu_token: (request, token, reason, logprob) => +Module.etwgpuHost.token(request, token, reason, logprob),
  etwgpu_pause: (token) => Module.etwgpuHost.pause(token),
});
