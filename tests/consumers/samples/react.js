import { createElement, useEffect } from 'react';
import { createRoot } from 'react-dom/client';
import { useModel } from './recipe-react.ts';

function App() {
  const { session, progress, error } = useModel('/models/efficientnet-lite0/');
  useEffect(() => {
    if (session || error) document.title = error ? String(error) : `${session.info.methods.length} ${progress.phase}`;
  }, [session, error]);
  return null;
}
createRoot(document.body).render(createElement(App));
