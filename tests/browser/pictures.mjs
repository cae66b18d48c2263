// The folder with scikit-image's pictures.
import { execFileSync } from 'node:child_process';

const FIND = 'import importlib.util as u, os; print(os.path.dirname(u.find_spec("skimage").origin))';
export const PICTURES = `${execFileSync('python', ['-c', FIND], { encoding: 'utf8' }).trim()}/data`;
