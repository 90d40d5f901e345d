"""Answers in Google's words."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any
from xml.etree import ElementTree

_NAMESPACE = "http://doc.s3.amazonaws.com/2006-03-01"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


class Refused(Exception):
    """What was asked for is answered with this."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


def in_json(content: dict[str, Any], status: int = 200) -> Answer:
    return Answer(status, {"Content-Type": "application/json; charset=UTF-8"}, json.dumps(content).encode())


def json_error(status: int, reason: str, message: str, **headers: str) -> Answer:
    error = {"code": status, "message": message, "errors": [{"message": message, "domain": "global", "reason": reason}]}
    answer = in_json({"error": error}, status)
    return Answer(status, answer.headers | headers, answer.body)


def in_xml(root: str, *children: tuple[str, Any], headers: dict[str, str] | None = None) -> Answer:
    """Returns an answer in XML; a child whose value is a list of pairs has children itself."""
    element = ElementTree.Element(root, xmlns=_NAMESPACE)
    _fill(element, children)
    return Answer(
        200, {"Content-Type": "application/xml; charset=UTF-8"} | (headers or {}), ElementTree.tostring(element)
    )


def xml_error(status: int, code: str, message: str) -> Answer:
    body = f"<?xml version='1.0' encoding='UTF-8'?><Error><Code>{code}</Code><Message>{message}</Message></Error>"
    return Answer(status, {"Content-Type": "application/xml; charset=UTF-8"}, body.encode())


def page(status: int = 200) -> Answer:
    """Returns the login page of a captive network."""
    return Answer(status, {"Content-Type": "text/html"}, b"<!DOCTYPE html><html><body>Please log in</body></html>")


def not_permitted(permission: str) -> Answer:
    text = f"me@project.iam.gserviceaccount.com does not have {permission} access to the Google Cloud Storage object."
    return json_error(403, "forbidden", f"{text} Permission '{permission}' denied on resource (or it may not exist).")


NO_CREDENTIALS = json_error(401, "authError", "Invalid Credentials")
NO_BUCKET = json_error(404, "notFound", "The specified bucket does not exist.")
XML_NO_BUCKET = xml_error(404, "NoSuchBucket", "The specified bucket does not exist.")
NO_UPLOAD = xml_error(404, "NoSuchUpload", "The requested upload was not found.")
NOT_MET = json_error(412, "conditionNotMet", "At least one of the pre-conditions you specified did not hold.")


def _fill(element: ElementTree.Element, children: Any) -> None:
    for name, value in children:
        child = ElementTree.SubElement(element, name)
        if isinstance(value, list):
            _fill(child, value)
        else:
            child.text = str(value)
