# SPDX-License-Identifier: Apache-2.0
"""Recorded iterations of the zoo's networks: trained on the backend `dry`, whose bytes are exact."""
import subprocess


def record(ebb, net, batch, image, classes, path):
    subprocess.run([ebb, "train", net, "--batch", str(batch), "--image", image, "--classes", str(classes), "--steps", "2",
                    "--backend", "dry", "--policy", "liveness", "--record", path], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
