"""Packet duplication on OpenFlow switches: an alternative to Holocast's controller.

After Qian et al., "Enabling eBPF-based packet duplication for robust volumetric video
streaming", section III. The duplicating node is an OpenFlow 1.3 switch (Open vSwitch)
instead of an eBPF program; everything else speaks the REST contract of netfunc/api.
"""
