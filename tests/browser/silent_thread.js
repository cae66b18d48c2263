// The package's worker, whose first thread never answers.
let first = true;
self.Worker = class extends self.Worker {
  constructor(script, options) {
    super(first ? '/saboteur.js' : script, options);
    first = false;
  }
};
await import('/web/worker.js');
