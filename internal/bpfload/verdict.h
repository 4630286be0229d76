// SPDX-License-Identifier: (GPL-2.0-only OR MIT)
/* Verdicts of TC programs. */
#ifndef HOLOCAST_VERDICT_H
#define HOLOCAST_VERDICT_H

#include <linux/pkt_cls.h>

/* PASS continues with the next program and then the stack. */
enum verdict { PASS = TC_ACT_UNSPEC, DROP = TC_ACT_SHOT };

#endif
