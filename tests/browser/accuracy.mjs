// How close the results of a browser come to eager's, beyond the greedy ids of every run.
import { assert, unwrap } from './runner.mjs';

/**
 * `test`: of the runner. `produced`: gets ids that differ from eager's, which are judged at the end. `llm` and
 * `evaluation`: the language model's folder, and its build with the logits of every position.
 */
export function accuracyTests({ test, produced, llm, evaluation }) {
  async function longAnswer(s, label, { long }, loadOptions) {
    await test(`${label}: 256 greedy ids equal eager's`, async () => {
      await s.loaded('llm', { modelUrl: llm, ...loadOptions });
      const options = { maxTokens: 256 };
      const result = unwrap(await s.call('generate', { key: 'llm', prompt: { tokenIds: long.promptIds }, options }));
      const ids = result.tokenIds;
      assert(ids.length === 256 && long.ids.length === 256, `${ids.length} ids, eager's ${long.ids.length}`);
      const first = ids.findIndex((id, i) => id !== long.ids[i]);
      if (first < 0) return;
      produced[`${label}: ${long.text}`] = { prompt_ids: long.promptIds, ids, count: 256 };
      return `another at ${first}`;
    });
  }

  /** Perplexity of the first `positions` tokens of Moby-Dick. Leaves nothing loaded. */
  async function perplexityOf(s, expected, positions, loadOptions) {
    await s.load('all', { modelUrl: evaluation, ...loadOptions });
    const { state } = unwrap(await s.call('memory', { key: 'all' }));
    let [count, ours, eager] = [0, 0, 0];
    for (const { ids, losses } of expected.text) {
      const length = Math.min(losses.length, positions - count);
      const found = unwrap(await s.call('losses', { key: 'all', ids: ids.slice(0, length + 1), chunk: 64 }));
      assert(found.length === length, `${found.length} losses of ${length}`);
      count += length;
      ours += found.reduce((x, y) => x + y, 0);
      eager += losses.slice(0, length).reduce((x, y) => x + y, 0);
    }
    await s.call('dispose', { key: 'all' });
    assert(count === positions, `only ${count} positions`);
    const change = Math.exp((ours - eager) / count) - 1;
    assert(Math.abs(change) <= 1e-3, `changed by ${change}`);
    const note = `${Math.exp(eager / count).toFixed(2)} over ${count} tokens, changed by ${change.toExponential(1)}`;
    return { state, note };
  }

  async function perplexity(s, label, expected, positions, loadOptions) {
    await test(`${label}: perplexity as eager's`, async () => {
      return (await perplexityOf(s, expected, positions, loadOptions)).note;
    });
    await s.call('dispose', { key: 'all' });
  }

  /** What is computed when nothing else is asked for: caches of f16 and 16-bit activations, together within the same bound. */
  async function halfCaches(s, label, expected, positions, loadOptions) {
    await test(`${label}: perplexity as eager's with caches of f16, of half the bytes`, async () => {
      const whole = await perplexityOf(s, expected, 1, { ...loadOptions, activations: 'exact' });
      const half = await perplexityOf(s, expected, positions, { ...loadOptions, activations: 'auto' });
      assert(2 * half.state === whole.state, `${half.state} bytes, in f32 ${whole.state}`);
      return half.note;
    });
    await s.call('dispose', { key: 'all' });
  }

  return { longAnswer, perplexity, halfCaches };
}
