// What the module asks of the JavaScript that made it: Module.etwgpuHost, an object with complete(), readSource(),
// token(), mask(), pause(), piece(), parseJson() and, for webgpu_library.js, isSoftware().
addToLibrary({
  etwgpu_complete: (request, code, message, messageLength, payload, payloadLength) => {
    Module.etwgpuHost.complete(request, code, message, messageLength, payload, payloadLength);
  },
  etwgpu_source_read: (source, requests, count, token) => {
    Module.etwgpuHost.readSource(source, requests, count, token);
  },
  etwgpu_token: (request, token, reason, logprob) => +Module.etwgpuHost.token(request, token, reason, logprob),
  etwgpu_mask: (request, words, count, token) => Module.etwgpuHost.mask(request, words, count, token),
  etwgpu_state_piece: (request, bytes, length) => Module.etwgpuHost.piece(request, bytes, length),
  etwgpu_parse_json: (text, length) => Module.etwgpuHost.parseJson(text, length),
  etwgpu_pause: (token) => Module.etwgpuHost.pause(token),
});
