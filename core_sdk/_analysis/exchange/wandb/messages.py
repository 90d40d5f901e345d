"""The messages of wandb's log, as far as we read them; protobuf skips all other fields."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE = "core_sdk.wandb"
_NUMBERS = {
    "string": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
    "int32": descriptor_pb2.FieldDescriptorProto.TYPE_INT32,
    "int64": descriptor_pb2.FieldDescriptorProto.TYPE_INT64,
}
# The fields of each message: name, number in wandb's own message, type; a star stands for a list.
_FIELDS = {
    "Value": "key 1 string, nested_key 2 string*, value_json 16 string",
    "Step": "num 1 int64",
    "Values": "item 1 Value*, step 2 Step",
    "Time": "seconds 1 int64, nanos 2 int32",
    "Git": "remote_url 1 string, commit 2 string",
    "Exit": "exit_code 1 int32",
    "Run": "project 3 string, config 4 Values, run_group 6 string, job_type 7 string, display_name 8 string, "
    "notes 9 string, tags 10 string*, host 13 string, start_time 17 Time, git 21 Git",
    "Record": "history 2 Values, summary 3 Values, config 5 Values, run 17 Run, exit 18 Exit",
}


def _record_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="core_sdk/wandb.proto", package=_PACKAGE, syntax="proto2")
    for message_name, fields in _FIELDS.items():
        message = file.message_type.add(name=message_name)
        for name, number, kind in (field.split() for field in fields.split(", ")):
            field = message.field.add(name=name, number=int(number))
            is_list = kind.endswith("*")
            field.label = field.LABEL_REPEATED if is_list else field.LABEL_OPTIONAL
            kind = kind.removesuffix("*")
            field.type = _NUMBERS.get(kind, field.TYPE_MESSAGE)
            if kind not in _NUMBERS:
                field.type_name = f".{_PACKAGE}.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.Record"))


Record = _record_class()
