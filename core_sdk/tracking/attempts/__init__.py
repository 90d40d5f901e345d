"""The life of an attempt: how a trial is begun, resumed, continued and restarted, whoever starts it."""
