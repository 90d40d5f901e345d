"""Records, in threads of their own, with what code and on which machine an attempt runs."""

from core_sdk.core._recorders._environment import EnvironmentRecorder
