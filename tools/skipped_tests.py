#!/usr/bin/env python3
"""Lists the tests that CTest skipped, each with its reason:  tools/skipped_tests.py build/tests.xml"""
import re
import sys
import xml.etree.ElementTree as xml


def reason(case):
    # GoogleTest prints "FILE:LINE: Skipped", then the reason on the next line.
    match = re.search(r": Skipped\n(.+)", case.findtext("system-out") or "")
    return match.group(1).strip() if match else case.find("skipped").get("message", "no reason given")


skipped = [case for case in xml.parse(sys.argv[1]).iter("testcase") if case.find("skipped") is not None]
reasons = {}
for case in skipped:
    reasons.setdefault(reason(case), []).append(case.get("name"))
if skipped:
    print(f"\n{len(skipped)} tests were skipped:")
for why, names in reasons.items():
    print(f"  {why}: {', '.join(names)}")
