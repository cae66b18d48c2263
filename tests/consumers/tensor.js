// All that it needs of the package is how numbers become a tensor.
import { tensor } from 'executorch-webgpu';

console.log(tensor('f16', [1], [1]));
