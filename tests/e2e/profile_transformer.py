# SPDX-License-Identifier: Apache-2.0
"""A training of an encoder of equal layers under torch.profiler: profile_transformer.py STEPS OUT.json"""
import os
import sys

import torch
from torch.profiler import ProfilerActivity, profile

steps, path = int(sys.argv[1]), sys.argv[2]
torch.manual_seed(0)
torch.set_num_threads(1)
layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
net = torch.nn.Sequential(torch.nn.TransformerEncoder(layer, 24 if "EBB_TEST_ALL" in os.environ else 8), torch.nn.Linear(16, 4))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
    for _ in range(steps):
        x = torch.ones(2, 8, 16)
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
prof.export_chrome_trace(path)
