"""Open questions: what tools want to do and what the model asks, decided above the prompt."""

from aar.transports.tui.approvals.panel import ApprovalPanel

__all__ = ["ApprovalPanel"]
