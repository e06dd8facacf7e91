"""Numbers below the smallest normal float are zero, whichever thread computes them."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from tests.running import Store

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="only there do MindSpore's threads differ")
HALVED = """
import sys
from msaccel.devices.denormals import flush_denormals
flush_denormals()
import threading
import matplotlib.pyplot, mindspore as ms, numpy as np
from mindspore import Parameter, Tensor, nn, ops
class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.tiny, self.operators = Parameter(Tensor([1e-37], ms.float32), name="tiny"), int(sys.argv[1])
    def construct(self, x):
        ops.assign(self.tiny, self.tiny * 0.5)
        for _ in range(self.operators):
            x = ops.tanh(x)
        return x
ms.set_device("CPU")
ms.set_context(mode=ms.GRAPH_MODE)
net = Net()
for _ in range(8):
    net(Tensor(np.ones((64, 64)), ms.float32))
halves = []
thread = threading.Thread(target=lambda: halves.append(np.float32(1e-40) * np.float32(0.5)))
thread.start()
thread.join()
print(net.tiny.asnumpy()[0], np.float32(1e-40) * np.float32(0.5), *halves)
"""


@pytest.mark.slow
@pytest.mark.parametrize("operators", [1, 60])  # MindSpore runs a small graph in its main thread, a large one in others
def test_in_every_thread_and_without_a_warning(tmp_path: Path, operators: int) -> None:
    script = tmp_path / "halved.py"
    script.write_text(HALVED)
    command = [sys.executable, "-W", "error::UserWarning", str(script), str(operators)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["0.0", "0.0", "0.0"]


@pytest.mark.slow
def test_in_a_job(store: Store) -> None:
    job = ("model=mlp", "data=synthetic", "optimizer=adam", "optimizer.beta1=0.5", "train.max_updates=140")
    assert store.run(*job, "train.epochs=5").returncode == 0
    (run,) = store.runs()
    kept = load_file(store.client.download_artifacts(run.info.run_id, "checkpoints/last.safetensors"))
    (power,) = (value for name, value in kept.items() if name.endswith("beta1_power"))
    assert power == 0  # 0.5¹⁴⁰ is below the smallest normal float, not below the smallest
