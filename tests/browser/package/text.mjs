// A language model through the package's interfaces.
import { execFileSync } from 'node:child_process';
import path from 'node:path';
import { assert } from '../runner.mjs';
import { ADAPTERS, HERE, LLM, MODELS, test } from './setting.mjs';

export async function talking({ page }, label) {
  await test(`${label}: a chat keeps its messages and what was computed of them`, async () => {
    await page.do('open', { key: 'llm', modelUrl: LLM, device: 'wasm' });
    const chat = await page.do('chat', { key: 'llm' });
    assert(chat.streamed.includes('Paris') && chat.streamed === chat.kept, chat);
    assert(chat.roles === 'system user assistant user assistant' && chat.undone === 'And of Italy?', chat);
    assert(chat.reused > 20, `${chat.reused} tokens reused`);
    await page.do('close', { key: 'llm' });
    return chat.streamed;
  });
  await test(`${label}: chat completions in OpenAI's shape`, async () => {
    await page.do('open', { key: 'llm', modelUrl: LLM, device: 'wasm' });
    const { whole, chunks, tools, aborted } = await page.do('completions', { key: 'llm' });
    const { message, finish_reason } = whole.choices[0];
    assert(whole.object === 'chat.completion' && whole.model === 'any' && finish_reason === 'length', whole);
    assert(message.role === 'assistant' && whole.usage.completion_tokens === 6, whole);
    const text = chunks.map((c) => c.choices[0]?.delta.content ?? '').join('');
    assert(text === message.content, `streamed "${text}", at once "${message.content}"`);
    assert(chunks.at(-2).choices[0].finish_reason === 'length', chunks.at(-2));
    assert(chunks.at(-1).choices.length === 0 && chunks.at(-1).usage.total_tokens > 6, chunks.at(-1));
    assert(/tools/.test(tools) && aborted === 'AbortError', { tools, aborted });
    await page.do('close', { key: 'llm' });
  });
}

export async function adapting({ page }, label) {
  await test(`${label}: LoRA adapters from a URL and at hand answer as they do natively`, async () => {
    const script = [
      path.join(HERE, 'adapter.py'),
      path.join(MODELS, path.basename(LLM)),
      path.join(ADAPTERS, 'random'),
    ];
    const native = JSON.parse(execFileSync('python', script, { encoding: 'utf8' }));
    const load = { modelUrl: LLM, device: 'wasm', activations: 'exact', adapter: '/adapters/random/' };
    const { url, plain, hand, refused, inspected } = await page.do('adapted', load);
    const [adapted, without] = [native.adapted, native.plain].map(String);
    assert(adapted !== without, 'the adapter does nothing');
    assert(String(url) === adapted && String(hand) === adapted, `${url} and ${hand}, natively ${adapted}`);
    assert(String(plain) === without, `${plain}, natively ${without}`);
    assert(refused && inspected.length === 2 && inspected[1].name === 'mine', inspected);
  });
}
