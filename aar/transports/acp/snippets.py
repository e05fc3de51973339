"""What sets an editor up for aar, as it is pasted into the editor's own configuration."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from aar import __version__

_DESCRIPTION = "A terminal coding assistant whose sessions are never lost"
_NEOVIM = """\
-- CodeCompanion, version 18 or later (~/.config/nvim): :CodeCompanionChat adapter=aar
require("codecompanion").setup({
  adapters = {
    acp = {
      aar = function()
        local helpers = require("codecompanion.adapters.acp.helpers")
        return {
          name = "aar",
          formatted_name = "aar",
          type = "acp",
          roles = { llm = "assistant", user = "user" },
          opts = { vision = true },
          commands = { default = { COMMAND } },
          defaults = { mcpServers = {}, timeout = 20000 },
          parameters = {
            protocolVersion = 1,
            clientCapabilities = { fs = { readTextFile = true, writeTextFile = true } },
            clientInfo = { name = "CodeCompanion.nvim", version = "1.0.0" },
          },
          handlers = {
            setup = function() return true end,
            auth = function() return true end,
            form_messages = function(self, messages, capabilities)
              return helpers.form_messages(self, messages, capabilities)
            end,
            on_exit = function() end,
          },
        }
      end,
    },
  },
  interactions = { chat = { adapter = "aar" } },
})

-- avante.nvim, which gives an agent no variables but PATH and these
require("avante").setup({
  provider = "aar",
  acp_providers = { aar = { command = PROGRAM, args = { ARGS }, env = vim.fn.environ() } },
})"""
_EMACS = """\
;; agent-shell (~/.emacs.d/init.el): M-x aar-agent-shell
(require 'agent-shell)
(defun aar-agent-shell ()
  "Start aar in the present project."
  (interactive)
  (agent-shell-start
   :config (agent-shell-make-agent-config
            :identifier 'aar
            :mode-line-name "aar"
            :buffer-name "aar"
            :shell-prompt "aar> "
            :shell-prompt-regexp "aar> "
            :client-maker (lambda (buffer)
                            (agent-shell--make-acp-client
                             :command PROGRAM
                             :command-params '(ARGS)
                             :environment-variables
                             (agent-shell-make-environment-variables :inherit-env t)
                             :context-buffer buffer)))))"""


def command() -> list[str]:
    """Return the command line that starts the server here."""
    # The one beside this interpreter: another project's program may have the name on the way there.
    beside = Path(sys.executable).with_name("aar")
    found = str(beside) if beside.is_file() else shutil.which("aar")
    return [found, "acp"] if found else [sys.executable, "-P", "-m", "aar", "acp"]


def snippet(editor: str) -> str:
    """Return the text for an editor: JSON, Lua, Lisp or a command line."""
    program, *args = command()
    server: dict[str, Any] = {"command": program, "args": args, "env": {}}
    if editor == "zed":
        return _json({"agent_servers": {"aar": {"type": "custom", **server}}})
    if editor == "jetbrains":
        return _json({"agent_servers": {"aar": server}})
    if editor == "vscode":
        return _json({"acp.agents": {"aar": server}})
    if editor == "registry":
        return _json(registry_entry())
    if editor == "toad":
        import shlex

        return f"toad acp --title aar {shlex.quote(shlex.join([program, *args]))} ."
    quoted = [json.dumps(word) for word in (program, *args)]
    if editor == "emacs":
        return _EMACS.replace("PROGRAM", quoted[0]).replace("ARGS", " ".join(quoted[1:]))
    lua = _NEOVIM.replace("COMMAND", ", ".join(quoted))
    return lua.replace("PROGRAM", quoted[0]).replace("ARGS", ", ".join(quoted[1:]))


def registry_entry() -> dict[str, Any]:
    """Return the entry for the registry of ACP agents."""
    return {
        "id": "aar",
        "name": "aar",
        "version": __version__,
        "description": _DESCRIPTION,
        "license": "Apache-2.0",
        "distribution": {"uvx": {"package": f"aar@{__version__}", "args": ["acp"]}},
    }


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=2)
