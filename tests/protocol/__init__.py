"""The protocol of a live move as models, explored exhaustively; see docs/protocol.md."""
