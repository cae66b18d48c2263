export { Chat, type ChatOptions } from './chat.js';
export { ImageClassifier, type Classification } from './image-classification.js';
export { TextGenerator } from './text-generation.js';
