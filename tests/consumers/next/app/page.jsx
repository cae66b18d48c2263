'use client';
import { useEffect, useState } from 'react';

export default function Page() {
  const [answer, setAnswer] = useState('');
  useEffect(() => {
    void (async () => {
      const { ExecuTorchRuntime } = await import('executorch-webgpu');
      const session = await ExecuTorchRuntime.loadModel({ modelUrl: '/models/smollm2-135m-instruct/', device: 'wasm' });
      const messages = [{ role: 'user', content: 'What is the capital of France?' }];
      let text = '';
      for await (const piece of session.generate(messages, { maxTokens: 7 })) setAnswer((text += piece));
      document.title = text;
      await session.dispose();
    })();
  }, []);
  return <p>{answer}</p>;
}
