import { createApp, h, watchEffect } from 'vue';
import { useModel } from './recipe-vue.ts';

const App = {
  setup() {
    const { session, progress } = useModel('/models/efficientnet-lite0/');
    watchEffect(() => {
      if (session.value) document.title = `${session.value.info.methods.length} ${progress.value.phase}`;
    });
    return () => h('p');
  },
};
createApp(App).mount('main');
