"""`python -m executorch_webgpu`, the same as the command `executorch-webgpu`."""

import sys

from executorch_webgpu.cli import main

sys.exit(main())
