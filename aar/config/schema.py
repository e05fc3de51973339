"""Every setting of aar with its default (DESIGN 7). Docstrings below fields are what `docs/` shows."""

# No `from __future__ import annotations`: pydantic would compile and evaluate the text of each annotation,
# a fifth of what it takes to define these models.
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    model_validator,
)

PermissionMode = Literal["plan", "ask", "edit", "auto", "unsafe"]
Wall = Literal["auto", "bubblewrap", "namespaces", "landlock", "seatbelt", "none"]
Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]


class Section(BaseModel):
    """A table of the config file. Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True, use_attribute_docstrings=False)


class ModelConfig(Section):
    """``[model]``: which model answers, and how it is asked."""

    name: str | None = None
    """``provider/model``; none: the first of a key in the environment, a running Ollama, ``local``."""
    fallback: tuple[str, ...] = ()
    """Models that go on when this one finally fails, in order."""
    fallback_remote: Literal["ask", "allow"] = "ask"
    """Whether a remote model may go on for one on this machine; where nobody answers, ``ask`` means no."""
    small: str | None = None
    """Model for titles, summaries and routing."""
    reasoning: str | NonNegativeInt | None = None
    """``off minimal low medium high max``, or a number of tokens."""
    api: Literal["auto", "responses", "chat"] = "auto"
    """Which of a vendor's interfaces to use."""
    stream: bool = True
    """Whether answers come piece by piece."""
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    """Sampling temperature; none: the server's default (0 for the embedded model)."""
    max_output_tokens: PositiveInt | None = None
    """Tokens of one answer; none: the server's default."""
    stop: tuple[str, ...] = ()
    """Sequences at which the model stops."""
    cache: Literal["auto", "off"] = "auto"
    """Prompt caching marks for vendors that need them."""
    retries: PositiveInt = 5
    """Attempts in all for one request."""
    dialect: Literal["auto", "native", "text", "files"] = "auto"
    """How the model acts: trained tool calls, tool calls in plain text, whole-file answers."""
    context_window: PositiveInt | None = None
    """Tokens that fit; none: what the catalogue or the server says."""


class ModelSettings(Section):
    """``[providers.NAME.models.MODEL]``: what you know better of one model than the catalogue."""

    context_window: PositiveInt | None = None
    """Tokens that fit, prompt and answer together."""
    max_output_tokens: PositiveInt | None = None
    """Tokens of one answer at most."""
    images: bool | None = None
    """Whether it takes images."""
    tools: bool | None = None
    """Whether it was trained for tool calls."""
    reasoning: bool | None = None
    """Whether it can think first."""
    dialect: Literal["native", "text", "files"] | None = None
    """How it acts."""
    price_input: NonNegativeFloat | None = None
    """US dollars for a million tokens of the prompt; needs ``price_output`` beside it."""
    price_output: NonNegativeFloat | None = None
    """The same for the answer, thinking included."""
    price_cache_read: NonNegativeFloat | None = None
    """The same for what is read from a prompt cache; none: as ``price_input``."""
    price_cache_write: NonNegativeFloat | None = None
    """The same for what is written to a prompt cache; none: as ``price_input``."""
    price_cache_write_1h: NonNegativeFloat | None = None
    """The same for a cache that is kept for an hour; none: as ``price_cache_write``."""


class ProviderConfig(Section):
    """``[providers.NAME]``: one server."""

    base_url: str | None = None
    """Address of the server."""
    api_key_env: str | None = None
    """Name of the environment variable that holds the key."""
    api_key_command: str | None = None
    """Command that prints the key."""
    headers: dict[str, str] = Field(default_factory=dict)
    """Headers added to every request."""
    timeout: Positive = 600
    """Seconds without a byte after which a request has failed, until the answer begins."""
    idle_timeout: Positive = 180
    """Seconds without a byte after which an answer that has begun is given up."""
    requests_per_minute: PositiveInt | None = None
    """Requests in any 60 seconds; more must wait. None: no limit."""
    tokens_per_minute: PositiveInt | None = None
    """Tokens of prompts and answers in any 60 seconds; more must wait. None: no limit."""
    extra: dict[str, Any] = Field(default_factory=dict)
    """Merged into the body of every request."""
    models: dict[str, ModelSettings] = Field(default_factory=dict[str, ModelSettings])
    """What you know better of single models, by name."""
    model_path: str | None = None
    """Weights file for ``local``."""
    context_window: PositiveInt | None = None
    """Tokens of context that ``local`` and ``ollama`` allot."""
    threads: PositiveInt | None = None
    """Threads of ``local``; none: one for each core."""
    keep_warm: NonNegativeFloat = 300
    """Seconds that the worker of ``local`` stays after its last request."""


class LimitsConfig(Section):
    """``[limits]``: for one run."""

    steps: PositiveInt = 500
    """Model requests."""
    seconds: NonNegativeFloat = 0
    """Wall-clock seconds; 0: no limit."""
    tokens: NonNegativeInt = 0
    """Tokens in all; 0: no limit."""
    usd: NonNegativeFloat = 0
    """US dollars; 0: no limit."""
    tool_calls_per_step: PositiveInt = 50
    """Tool calls of one answer that are run; the rest are refused with the reason."""


class BudgetConfig(Section):
    """``[budget]``: over runs."""

    session_usd: NonNegativeFloat = 0
    """US dollars for a session; 0: no limit."""
    day_usd: NonNegativeFloat = 0
    """US dollars for a day; 0: no limit."""
    warn_at: Share = 0.8
    """Share of a limit at which a warning is shown."""


class GuardrailsConfig(Section):
    """``[guardrails]``: how aar helps a model that got stuck. All counts are for one run."""

    max_tokens_recoveries: NonNegativeInt = 2
    """How often an answer cut at the output limit is continued."""
    max_empty_answers: NonNegativeInt = 2
    """How often an empty answer is asked again."""
    max_repeated_tool_steps: PositiveInt = 3
    """Equal steps in a row after which the run stops; a warning comes one earlier."""
    reserve_tokens: NonNegativeInt = 512
    """Tokens kept back from the token limit for the last answer."""
    reserve_cost_fraction: Share = 0.1
    """Share of the cost limit kept back for the last answer."""


class RuleExamples(Section):
    """``[permissions.examples."RULE"]``: what a rule is meant to cover, checked at the start."""

    match: tuple[str, ...] = ()
    """Commands, paths, hosts or tools that the rule covers."""
    not_match: tuple[str, ...] = ()
    """Such that it does not cover."""


class PermissionsConfig(Section):
    """``[permissions]``: what needs a question."""

    mode: PermissionMode | None = None
    """See the mode table in docs/safety.md; none: ``ask`` where a person answers, ``auto`` for aar run."""
    allow: tuple[str, ...] = ()
    """Rules that allow."""
    ask: tuple[str, ...] = ()
    """Rules that ask."""
    deny: tuple[str, ...] = ()
    """Rules that deny."""
    examples: dict[str, RuleExamples] = Field(default_factory=dict[str, RuleExamples])
    """By rule: what it covers and what it does not, checked at the start."""


class SandboxConfig(Section):
    """``[sandbox]``: the wall around commands."""

    mode: Wall = "auto"
    """Which wall; ``auto`` takes the strongest that works here."""
    allow_domains: tuple[str, ...] = ()
    """Hosts that commands may reach: HOST, *.HOST, HOST:PORT, or pypi, npm, crates, go, github."""
    readable: tuple[str, ...] = ()
    """Paths that may be read although they look secret."""
    writable: tuple[str, ...] = ()
    """Folders that may be written besides the workspace."""
    protected: tuple[str, ...] = ()
    """More paths in the workspace that commands may not write."""
    secrets: tuple[str, ...] = ()
    """More paths that may not be read."""
    memory_mb: NonNegativeInt = 0
    """Address space of a command in MiB; 0: no limit."""
    processes: NonNegativeInt = 4096
    """Processes and threads of a command; 0: no limit."""
    cpu_seconds: NonNegativeInt = 0
    """Processor seconds of each process of a command; 0: no limit."""
    file_mb: NonNegativeInt = 20_000
    """Largest file that a command may write, in MiB; 0: no limit."""
    shared_caches: bool = True
    """Whether commands may write the caches of pip, npm, cargo … in your home; else they get empty ones."""


class ToolSettings(Section):
    """``[tools.NAME]``: one tool."""

    timeout: Positive | None = None
    """Seconds a call may take."""
    persistent: bool = False
    """Whether folder, variables and functions last from one call to the next (bash only)."""


class ToolsConfig(Section):
    """``[tools]``."""

    model_config = ConfigDict(extra="allow", frozen=True, defer_build=True)

    enabled: tuple[str, ...] | None = None
    """Names of the tools that the model gets; none: all."""
    max_output_chars: PositiveInt = 50_000
    """Characters of one result that the model sees; the whole is kept for read_output."""
    parallel: PositiveInt = 8
    """Read-only calls of one step that run side by side."""

    __pydantic_extra__: dict[str, ToolSettings]  # pyright: ignore[reportIncompatibleVariableOverride]

    @model_validator(mode="after")
    def _only_bash_persists(self) -> Self:
        for name, settings in (self.__pydantic_extra__ or {}).items():
            if settings.persistent and name != "bash":
                raise ValueError(f"only bash can be persistent, not {name}")
        return self

    def timeout(self, name: str, default: float) -> float:
        """Return the timeout of tool ``name`` in seconds."""
        settings = (self.__pydantic_extra__ or {}).get(name)
        return default if settings is None or settings.timeout is None else settings.timeout

    @property
    def persistent_shell(self) -> bool:
        """Whether the commands of an agent share a shell."""
        settings = (self.__pydantic_extra__ or {}).get("bash")
        return settings is not None and settings.persistent


class ContextConfig(Section):
    """``[context]``: what is put before the model."""

    compact_at: Share = 0.7
    """Share of the window at which the session is compacted."""
    files_budget_tokens: PositiveInt = 3000
    """Tokens of file content that a model of the ``files`` dialect is shown."""
    max_prompt_chars: PositiveInt = 2_000_000
    """Longest prompt that is taken."""
    max_attachment_bytes: PositiveInt = 10_000_000
    """Largest attached file or image."""


class SessionConfig(Section):
    """``[session]``."""

    store: bool = True
    """Whether sessions are kept on disk."""
    audit: bool = False
    """Whether a keyed hash of each line is kept, so that `aar audit verify` sees later changes."""


class CheckpointsConfig(Section):
    """``[checkpoints]``: what undo can bring back."""

    enabled: bool = True
    """Whether files are kept before they change."""
    max_file_mb: PositiveInt = 20
    """Larger files are left out, in MB; aar tells which."""
    max_files: PositiveInt = 200_000
    """A workspace of more files is not kept at all; aar tells so."""
    wait_seconds: Positive = 30
    """Longest time that a tool call waits for its checkpoint."""
    keep_days: Positive = 30
    """Age at which checkpoints are thrown away."""
    quota_mb: NonNegativeInt = 2000
    """Size for each project, in MB, at which the oldest are thrown away; 0: no limit."""


class VerifyConfig(Section):
    """``[verify]``: checks that end a run."""

    commands: tuple[str, ...] = ()
    """Commands that must pass."""
    timeout: Positive = 600
    """Seconds for one command."""
    max_output_chars: PositiveInt = 6000
    """Characters of a failing command's output that the model sees."""
    judge: str | None = None
    """Model that judges ``judge:`` checks; by default ``[model] small``, else the model that works."""


class PlanConfig(Section):
    """``[plan]``: how a plan is run."""

    retries: Annotated[int, Field(ge=1, le=20)] = 3
    """Failures of one step after which the plan is changed."""
    consecutive_failures: Annotated[int, Field(ge=2, le=20)] = 2
    """Different steps that fail one after the other, after which the plan is changed."""
    max_replans: Annotated[int, Field(ge=0, le=20)] = 3
    """Changes of one plan at most; 0: it is never changed."""
    max_parallel: Annotated[int, Field(ge=1, le=32)] = 4
    """Steps side by side: those that only read, and with ``worktrees`` those that write."""
    worktrees: bool = False
    """Whether steps that write run side by side, each in a work tree of git; needs a sandbox."""


class TuiLayoutConfig(Section):
    """``[tui.layout]``: which parts of the screen are shown."""

    header: bool = True
    """The line at the top."""
    activity: bool = True
    """The line that says what happens now."""
    footer: bool = True
    """The line of keys at the bottom."""
    panel: bool | Literal["auto"] = "auto"
    """The side panel; ``auto``: where the terminal has at least ``panel_from`` columns."""
    panel_width: Annotated[int, Field(ge=20, le=80)] = 34
    """Columns of the side panel."""
    panel_from: Annotated[int, Field(ge=60, le=400)] = 120
    """Columns of a terminal that has room for the side panel."""
    sections: tuple[Literal["thinking", "plan", "files", "agents", "context", "log"], ...] = (
        "thinking",
        "plan",
        "files",
        "agents",
        "context",
        "log",
    )
    """Parts of the side panel, in this order."""


class TuiConfig(Section):
    """``[tui]``."""

    theme: str = "auto"
    """Name of a theme; ``auto`` follows the terminal's background."""
    layout: TuiLayoutConfig = TuiLayoutConfig.model_construct()
    """Which parts of the screen are shown: the table above."""
    keys: dict[str, str | dict[str, str]] = Field(default_factory=dict[str, str | dict[str, str]])
    """Keys by action (``[tui.keys.prompt] send``), several with commas; docs/keyboard.md lists them."""
    vim: bool = False
    """Whether the prompt has vim's keys."""
    mouse: bool = True
    """Whether clicks and the wheel go to aar; else the terminal selects text with them."""
    screen_reader: bool = False
    """No animation, no drawn lines, words instead of signs."""
    notify: Literal["auto", "bell", "osc9", "off"] = "auto"
    """How aar calls when it needs you and its window has no focus."""
    status_command: str | None = None
    """Shell command whose first line of output stands in the footer; its input is the session as JSON."""
    status_interval: Annotated[float, Field(ge=1, le=3600)] = 30
    """Seconds between two calls of ``status_command`` while nothing happens."""


class McpServerConfig(Section):
    """``[mcp.servers.NAME]``: one MCP server."""

    command: str | None = None
    """Program, for stdio."""
    args: tuple[str, ...] = ()
    """Its arguments."""
    env: dict[str, str] = Field(default_factory=dict)
    """Its environment."""
    cwd: str | None = None
    """Its working folder; without one the project's root."""
    sandbox: bool = True
    """Whether a stdio server runs inside the wall."""
    network: bool = False
    """Whether a stdio server inside the wall may use the network."""
    url: str | None = None
    """Address, for streamable HTTP."""
    transport: Literal["auto", "http", "sse"] = "auto"
    """How ``url`` is spoken to; ``auto`` takes streamable HTTP, and SSE where the server is an old one."""
    headers: dict[str, str] = Field(default_factory=dict)
    """Headers, for streamable HTTP."""
    oauth_client_id: str | None = None
    """Client to sign in as, where the server's sign-in lets none register itself."""
    lazy: bool = False
    """Whether it is started when it is first needed, not in the background of the first run."""
    startup_timeout: Annotated[float, Field(gt=0, le=600)] = 30
    """Seconds until it must be ready."""
    timeout: Annotated[float, Field(gt=0, le=3600)] = 60
    """Seconds that one call may take without any sign of progress."""
    cache_ttl_s: Annotated[float, Field(ge=0, le=86_400)] = 0
    """Seconds for which results of read-only tools are used again; 0: never."""
    tools: tuple[str, ...] | None = None
    """Its tools that are used, by their own names; all without it."""
    required: bool = False
    """Whether a run without it must not start."""
    enabled: bool = True
    """Whether it is used."""


class McpConfig(Section):
    """``[mcp]``."""

    servers: dict[str, McpServerConfig] = Field(default_factory=dict[str, McpServerConfig])
    """Servers by name."""
    search_above: Annotated[int, Field(ge=0, le=10_000)] = 40
    """With more tools of servers than this, the model searches for them instead of getting all schemas."""
    wait_s: Annotated[float, Field(ge=0, le=600)] = 30
    """Seconds that a run without a person waits for servers; with one, two seconds at most."""


class LspConfig(Section):
    """``[lsp.NAME]``: a language server that looks at files after edits."""

    command: tuple[str, ...]
    """Program and arguments; it speaks over standard input and output."""
    extensions: tuple[str, ...]
    """Endings of the files that it is for, with the dot, or whole names."""
    language: str | None = None
    """Identifier of the language, where the ending does not tell it."""
    level: Literal["error", "warning"] = "error"
    """Least severity that the model is told."""
    timeout: Annotated[float, Field(gt=0, le=120)] = 10
    """Seconds that an edit waits for it."""
    startup_timeout: Annotated[float, Field(gt=0, le=600)] = 60
    """Seconds that the first edit waits for it."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Its settings, as an editor would give them."""
    init_options: dict[str, Any] = Field(default_factory=dict)
    """What it gets with the first request."""
    env: dict[str, str] = Field(default_factory=dict)
    """Its environment."""
    writes: bool = False
    """Whether it may write into the project, as some do that build."""
    sandbox: bool = True
    """Whether it runs inside the wall."""
    network: bool = False
    """Whether it may use the network inside the wall."""
    enabled: bool = True
    """Whether it is used."""


class RestConfig(Section):
    """``[rest.NAME]``: an HTTP service whose operations become tools."""

    spec: str
    """File of its OpenAPI 3 document, JSON or YAML; relative to the project."""
    base_url: str
    """Address that all requests go to; the document's own servers do not count."""
    auth_env: str | None = None
    """Variable with the token that is sent as ``Authorization: Bearer``."""
    headers: dict[str, str] = Field(default_factory=dict)
    """More headers; ``${VAR}`` is replaced when they are sent."""
    allow: tuple[str, ...] | None = None
    """Patterns of operation ids that become tools; all without it."""
    private: bool = False
    """Whether the address may be on this machine or in a private network."""
    timeout: Annotated[float, Field(gt=0, le=600)] = 30
    """Seconds of one request."""
    max_bytes: Annotated[int, Field(ge=1000, le=50_000_000)] = 2_000_000
    """Bytes of an answer that are read."""
    enabled: bool = True
    """Whether it is used."""


class WebConfig(Section):
    """``[web]``: ``web_fetch`` and ``web_search``."""

    search: str | None = None
    """What searches: ``mcp__SERVER__TOOL``, or an http(s) address with ``{query}`` that answers in JSON."""
    search_headers: dict[str, str] = Field(default_factory=dict)
    """Headers for that address."""
    timeout: Annotated[float, Field(gt=0, le=300)] = 30
    """Seconds for one page, redirects included."""
    max_bytes: Annotated[int, Field(ge=1000, le=100_000_000)] = 5_000_000
    """Bytes of one page, unpacked."""
    cache_s: Annotated[float, Field(ge=0, le=86_400)] = 900
    """Seconds for which a page is kept in memory; 0: not at all."""


class MemoryConfig(Section):
    """``[memory]``: notes for later sessions."""

    enabled: bool = True
    """Whether there are notes, and tools for them."""
    recall: Annotated[int, Field(ge=0, le=20)] = 3
    """Notes that come with a prompt that they fit, at most; 0: none come by themselves."""
    recall_tokens: PositiveInt = 800
    """Tokens of all of them, about."""
    write: Literal["ask", "auto", "off"] = "ask"
    """What becomes of notes that the model proposes: you are asked, they are kept, or there are none."""
    embeddings: str | None = None
    """What finds notes by what they say besides by words: ``wordllama``, or ``PROVIDER/MODEL``."""
    stale_days: NonNegativeInt = 180
    """Age in days at which a note is called old; 0: never."""


class VoiceConfig(Section):
    """``[voice]``: speaking instead of typing, by programs of yours."""

    stt_command: str | None = None
    """Command line of a program that records, and prints what it heard; SIGINT ends the recording."""
    tts_command: str | None = None
    """Command line of a program that speaks what it reads from standard input."""
    speak: bool = False
    """Whether answers are read aloud from the start; ``/voice on`` and ``off`` change it in a session."""
    seconds: Annotated[float, Field(gt=0, le=3600)] = 300
    """Seconds of one recording at most, the time to understand it included."""


class ExtensionsConfig(Section):
    """``[extensions]``: Python extensions."""

    enabled: bool = True
    """Whether extensions are loaded."""
    use: tuple[str, ...] = ()
    """Names of extensions that come with aar and are wanted; ``aar extensions list`` shows them."""
    disabled: tuple[str, ...] = ()
    """Names of extensions that are not loaded."""
    load_seconds: Annotated[float, Field(gt=0, le=60)] = 3
    """Seconds that each may take to load; they load side by side."""
    hook_seconds: Annotated[float, Field(gt=0, le=600)] = 5
    """Seconds for a hook, command or panel of an extension that does not say otherwise."""
    settings: dict[str, dict[str, Any]] = Field(default_factory=dict[str, dict[str, Any]])
    """Settings of extensions by name (``[extensions.settings.NAME]``)."""


class LogConfig(Section):
    """``[log]``: the diagnostics log under ``<data>/logs``."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """What is written."""
    trace: tuple[Literal["llm", "mcp"], ...] = ()
    """Which traffic is written out, redacted."""


class Config(Section):
    """All settings."""

    model: ModelConfig = ModelConfig.model_construct()
    providers: dict[str, ProviderConfig] = Field(default_factory=dict[str, ProviderConfig])
    limits: LimitsConfig = LimitsConfig.model_construct()
    budget: BudgetConfig = BudgetConfig.model_construct()
    guardrails: GuardrailsConfig = GuardrailsConfig.model_construct()
    permissions: PermissionsConfig = PermissionsConfig.model_construct()
    sandbox: SandboxConfig = SandboxConfig.model_construct()
    tools: ToolsConfig = ToolsConfig.model_construct()
    context: ContextConfig = ContextConfig.model_construct()
    session: SessionConfig = SessionConfig.model_construct()
    checkpoints: CheckpointsConfig = CheckpointsConfig.model_construct()
    verify: VerifyConfig = VerifyConfig.model_construct()
    plan: PlanConfig = PlanConfig.model_construct()
    tui: TuiConfig = TuiConfig.model_construct()
    mcp: McpConfig = McpConfig.model_construct()
    lsp: dict[str, LspConfig] = Field(default_factory=dict[str, LspConfig])
    rest: dict[str, RestConfig] = Field(default_factory=dict[str, RestConfig])
    web: WebConfig = WebConfig.model_construct()
    hooks: dict[str, Any] = Field(default_factory=dict)
    extensions: ExtensionsConfig = ExtensionsConfig.model_construct()
    agents: dict[str, Any] = Field(default_factory=dict)
    memory: MemoryConfig = MemoryConfig.model_construct()
    voice: VoiceConfig = VoiceConfig.model_construct()
    log: LogConfig = LogConfig.model_construct()
