// Only type-checked: every public type as a strict TypeScript user meets it.
import {
  ExecuTorchError,
  ExecuTorchRuntime,
  tensor,
  toNumbers,
  type CachedModelInfo,
  type LoadOptions,
  type Progress,
  type Session,
  type Tensor,
} from 'executorch-webgpu';
import { openai, type ChatCompletion } from 'executorch-webgpu/openai';
import { Chat, ImageClassifier, TextGenerator, type Classification } from 'executorch-webgpu/tasks';

const options: LoadOptions = {
  modelUrl: new URL('https://example.com/model/'),
  cache: 'auto',
  onProgress: ({ phase, loaded, total, secondsLeft }: Progress) => console.log(phase, loaded / total, secondsLeft ?? 0),
};

export async function use(file: File, video: HTMLVideoElement): Promise<string> {
  const session: Session = await ExecuTorchRuntime.loadModel(options);
  await ExecuTorchRuntime.loadModel({ model: file, signal: AbortSignal.timeout(1000) }).catch((error: unknown) => {
    if (error instanceof ExecuTorchError && error.code === 'integrity') console.log(error.message);
  });
  const [output] = await session.run([tensor('f32', [1, 2], [1, 2]), { float: 1 }, 2]);
  const numbers: number[] = toNumbers(output as Tensor);
  const best: Classification[] = await new ImageClassifier(session).classify(video);
  const chat: Chat = session.chat({ system: 'Be brief.' });
  for await (const piece of chat.send('Hello')) console.log(piece.length);
  const answer: ChatCompletion = await openai(session).chat.completions.create({ messages: chat.messages });
  const stream = await openai(session).chat.completions.create({ messages: chat.messages, stream: true });
  for await (const chunk of stream) console.log(chunk.choices[0]?.delta.content);
  const { text, finishReason } = await new TextGenerator(session).continue('Once');
  const kept: CachedModelInfo[] = await ExecuTorchRuntime.cache.list();
  await session.dispose();
  return [numbers, best[0]?.label, answer.choices[0].message.content, text, finishReason, kept.length].join();
}

/** Where the answer's form is only known when it runs, and a conversation has calls of tools. */
export async function either(session: Session, stream: boolean): Promise<string> {
  const call = { id: '1', type: 'function', function: { name: 'now', arguments: '{}' } };
  const messages = [
    { role: 'user', content: 'What time is it?' },
    { role: 'assistant', content: null, tool_calls: [call] },
    { role: 'tool', content: 'noon', tool_call_id: '1' },
  ];
  const answer = await openai(session).chat.completions.create({ messages, stream, n: 1, logprobs: false });
  return 'choices' in answer ? answer.choices[0].message.content : 'a stream';
}

export async function scoped(): Promise<number | undefined> {
  await using session = await ExecuTorchRuntime.loadModel({ modelUrl: '/model/', worker: false });
  // @ts-expect-error: a slip
  await ExecuTorchRuntime.loadModel({ modelUrl: '/model/', device: 'atuo' }).catch(() => undefined);
  // @ts-expect-error: no such device
  await ExecuTorchRuntime.loadModel({ modelUrl: '/model/', device: 'cuda' }).catch(() => undefined);
  return session.info.contextLength;
}
