"""Checks whether a training goes on exactly after a stop or a kill.

The command is trained undisturbed, twice, and then disturbed at chosen moments and resumed, each time in a home of its
own. Every number that it reports is compared with the undisturbed training, bit for bit.
"""

from core_sdk._analysis.resume_check._check import ResumeCheck
from core_sdk._analysis.resume_check._drawing import parting_charts
from core_sdk._analysis.resume_check._report import MomentResult, ResumeReport
