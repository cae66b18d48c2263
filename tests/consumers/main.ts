// What a user writes: the same in every fixture.
import { ExecuTorchRuntime } from 'executorch-webgpu';

const session = await ExecuTorchRuntime.loadModel({ modelUrl: '/models/smollm2-135m-instruct/', device: 'wasm' });
const messages = [{ role: 'user', content: 'What is the capital of France?' }];
let text = '';
for await (const piece of session.generate(messages, { maxTokens: 7 })) text += piece;
document.title = text;
await session.dispose();
