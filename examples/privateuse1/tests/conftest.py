"""Tests of the device run in processes of their own, because a process has one PrivateUse1 device, with one name."""

import os
import resource

ON_DEVICE = "KEEL_PRIVATEUSE1_TESTS"
"""The environment variable that is set in these processes."""

collect_ignore = [] if os.environ.get(ON_DEVICE) else ["on_device"]

if os.environ.get(ON_DEVICE):  # the device reserves more address space than a bound that other tests may have set
    most = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
