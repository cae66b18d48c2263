// What is measured. `plan`: [prompts, new tokens, repetitions]; the peers get fewer repetitions because they take minutes.

const plan = (repetitions, tokens) => [
  ['p128', tokens, repetitions],
  ['p512', tokens, repetitions],
];

/** `tokens`: how many are decoded after the one that the prompt gives. */
export function configurations({ tokens, repetitions }) {
  const ours = { runtime: 'ours', plan: plan(3 * repetitions, tokens + 1) };
  const peer = { peer: true, plan: plan(repetitions, tokens + 1) };
  return [
    { id: 'ours-relaxed', ...ours, tier: 'relaxed' },
    { id: 'ours-simd128', ...ours, tier: 'simd128' },
    { id: 'ours-relaxed-exact', ...ours, tier: 'relaxed', activations: 'exact' },
    { id: 'wllama-q4', runtime: 'wllama', ...peer, model: '/models/smollm2.gguf' },
    { id: 'transformers-q4', runtime: 'transformers', ...peer, models: '/models/', model: 'smollm2', dtype: 'q4' },
  ];
}
