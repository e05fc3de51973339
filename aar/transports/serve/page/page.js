"use strict";
// Everything that comes from a model, a tool or a file is put on the page as text, never as HTML.

const MODES = ["plan", "ask", "edit", "auto", "unsafe"];
const byId = (id) => document.getElementById(id);
const kept = {
  get: () => { try { return sessionStorage.getItem("aar-token") || ""; } catch { return ""; } },
  set: (value) => { try { sessionStorage.setItem("aar-token", value); } catch { /* kept in memory only */ } },
};
let token = "";
let session = null; // id of the session that is shown
let watching = null; // AbortController of its stream
let view = null; // what is on the screen of it

// --- requests ---------------------------------------------------------------------------------------------

async function call(method, path, body) {
  const headers = { authorization: `Bearer ${token}` };
  if (body !== undefined) headers["content-type"] = "application/json";
  const answer = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  if (answer.status === 401) { showLogin("That token is not the server's."); throw new Error("The token is wrong."); }
  if (!answer.ok) {
    let told = `${answer.status} ${answer.statusText}`;
    try { told = (await answer.json()).error.message; } catch { /* no JSON */ }
    throw new Error(told);
  }
  return answer.status === 204 || answer.headers.get("content-length") === "0" ? null : answer.json().catch(() => null);
}

function problem(text) {
  byId("problem").textContent = visible(text);
  byId("problem").hidden = !text;
}

const doing = (work) => async (event) => {
  if (event) event.preventDefault();
  problem("");
  try { await work(event); } catch (error) { problem(error.message); }
};

// --- the stream of a session ------------------------------------------------------------------------------

async function watch(id) {
  if (watching) watching.abort();
  const own = watching = new AbortController();
  let last = 0;
  for (let wait = 300; !own.signal.aborted; wait = Math.min(wait * 2, 5000)) {
    try {
      const headers = { authorization: `Bearer ${token}`, "last-event-id": String(last) };
      const answer = await fetch(`/api/sessions/${id}/events`, { headers, signal: own.signal });
      if (answer.status === 401) { showLogin("That token is not the server's."); return; }
      if (!answer.ok) throw new Error(`The session cannot be watched (${answer.status}).`);
      wait = 300;
      problem("");
      for await (const data of frames(answer.body)) {
        const event = JSON.parse(data);
        if (event.seq) last = event.seq;
        if (!own.signal.aborted) show(event);
      }
    } catch (error) {
      if (own.signal.aborted) return;
      problem(`Connection lost (${error.message}); trying again.`);
    }
    await new Promise((done) => setTimeout(done, wait));
  }
}

async function* frames(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const data = part.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6));
      if (data.length) yield data.join("\n");
    }
  }
}

// --- what is shown ----------------------------------------------------------------------------------------

// Characters that nobody sees, or that put others in another order, are shown as what they are.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\uffa0\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]/gu;
const visible = (text) => String(text).replaceAll("\r\n", "\n").replace(UNSEEN, (one) => `\\u{${one.codePointAt(0).toString(16)}}`);

function element(kind, name, text) {
  const made = document.createElement(kind);
  if (name) made.className = name;
  if (text !== undefined) made.textContent = visible(text);
  return made;
}

function add(node) {
  const box = byId("transcript");
  const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 60;
  box.append(node);
  if (atEnd) box.scrollTop = box.scrollHeight;
  return node;
}

const wordsOf = (content) => content.map((block) =>
  block.type === "text" ? block.text : block.type === "resource" ? `[${block.uri}]` : "[image]").join("\n");

const SHOWN = {
  session: (event) => { if (event.title) byId("title").textContent = visible(event.title); },
  user_message: (event) => { endPieces(); add(element("div", "user", wordsOf(event.content))); },
  stream_chunk: (event) => {
    if (event.agent_id !== "main") return;
    if (event.reasoning_text) piece("thought", event.reasoning_text);
    if (event.text) piece("answer", event.text);
  },
  reasoning: (event) => settle("thought", event.content),
  assistant_message: (event) => settle("answer", event.content),
  retry: () => { for (const node of Object.values(view.pieces)) node.remove(); view.pieces = {}; },
  tool_call: (event) => {
    endPieces();
    const box = element("details", "tool");
    const said = typeof event.arguments.command === "string" ? event.arguments.command : JSON.stringify(event.arguments);
    box.append(element("summary", "", `${event.tool_name} ${said}`), element("pre", "", JSON.stringify(event.arguments, null, 2)));
    view.tools.set(event.call_id, add(box));
  },
  tool_progress: (event) => {
    const box = view.tools.get(event.call_id);
    if (!box) return;
    if (!box.output) { box.output = element("pre", "", ""); box.append(box.output); }
    box.output.textContent = (box.output.textContent + visible(event.text)).slice(-20000);
  },
  tool_result: (event) => {
    const box = view.tools.get(event.call_id);
    if (!box) return;
    if (event.is_error || event.exit_code) box.classList.add("failed");
    if (!box.output) { box.output = element("pre", "", ""); box.append(box.output); }
    box.output.textContent = visible(event.diff || event.output);
  },
  approval_request: (event) => view.asked.set(event.request_id, event),
  approval: (event) => view.asked.delete(event.request_id),
  notice: (event) => add(element("div", "notice", event.message)),
  error: (event) => add(element("div", "error", event.message)),
  compaction: () => add(element("div", "notice", "Older turns were summed up for the model.")),
  setting: (event) => { if (event.key === "mode") setMode(event.to); },
  state: (event) => {
    if (event.agent_id !== "main") return;
    view.state = event.state;
    byId("facts").textContent = event.state.replaceAll("_", " ");
    byId("cancel").disabled = !["running", "waiting_for_tool", "waiting_for_input", "compacting"].includes(event.state);
    if (["completed", "cancelled", "error", "max_steps", "timed_out", "budget_exceeded"].includes(event.state)) {
      endPieces();
      view.asked.clear();
    }
  },
};

function show(event) {
  const main = event.agent_id === "main" || ["approval", "approval_request"].includes(event.type);
  if (main && SHOWN[event.type]) SHOWN[event.type](event);
  drawQuestions();
}

function piece(kind, text) {
  if (!view.pieces[kind]) view.pieces[kind] = add(element("div", kind, ""));
  view.pieces[kind].append(document.createTextNode(visible(text)));
  const box = byId("transcript");
  if (box.scrollHeight - box.scrollTop - box.clientHeight < 200) box.scrollTop = box.scrollHeight;
}

function settle(kind, text) {
  const node = view.pieces[kind] || (text ? add(element("div", kind, "")) : null);
  if (node) node.textContent = visible(text);
  delete view.pieces[kind];
}

function endPieces() { view.pieces = {}; }

function drawQuestions() {
  const box = byId("approvals");
  const ids = [...view.asked.keys()].join();
  if (ids === view.drawn) return;
  view.drawn = ids;
  box.replaceChildren(...[...view.asked.values()].map(question));
}

function question(asked) {
  const box = element("div", "ask");
  const answers = element("div", "answers");
  const send = (body) => doing(() => call("POST", `/api/sessions/${session}/approvals/${asked.request_id}`, body));
  const button = (name, body) => { const made = element("button", "", name); made.type = "button"; made.onclick = send(body); return made; };
  if (asked.tool_name === "ask_user") {
    box.append(element("h2", "", String(asked.arguments.question || "")));
    for (const option of asked.arguments.options || []) answers.append(button(String(option), { decision: "allow", feedback: String(option) }));
    const words = element("input");
    words.setAttribute("aria-label", "Another answer");
    const say = element("button", "", "Answer");
    say.type = "button";
    say.onclick = () => send({ decision: "allow", feedback: words.value })();
    answers.append(words, say);
  } else {
    box.append(element("h2", "", `May ${asked.tool_name} run?`));
    const reasons = ((asked.why || {}).reasons || []).join("; ");
    if (reasons) box.append(element("div", "notice", reasons));
    const command = typeof asked.arguments.command === "string" ? asked.arguments.command : JSON.stringify(asked.arguments, null, 2);
    box.append(element("pre", "", asked.diff || command));
    answers.append(button("Allow once", { decision: "allow" }));
    if (asked.proposed_rule && asked.scopes.includes("session")) answers.append(button(`Allow ${asked.proposed_rule} in this session`, { decision: "allow", scope: "session" }));
    answers.append(button("Reject", { decision: "reject" }));
  }
  box.append(answers);
  return box;
}

// --- sessions ---------------------------------------------------------------------------------------------

async function list() {
  const { sessions } = await call("GET", "/api/sessions?limit=50");
  byId("sessions").replaceChildren(...sessions.map((one) => {
    const item = element("li", one.running ? "running" : "");
    const open = element("button", "", one.title || "untitled");
    open.type = "button";
    open.title = `${one.updated} · ${one.model}`;
    open.setAttribute("aria-current", String(one.id === session));
    open.onclick = doing(() => enter(one.id));
    item.append(open);
    return item;
  }));
}

function setMode(mode) {
  const box = byId("mode");
  if (![...box.options].some((option) => option.value === mode)) box.append(new Option(mode, mode));
  box.value = mode;
}

async function enter(id) {
  const state = await call("GET", `/api/sessions/${id}`);
  session = id;
  view = { pieces: {}, tools: new Map(), asked: new Map(), drawn: "", state: "" };
  byId("transcript").replaceChildren();
  byId("approvals").replaceChildren();
  byId("title").textContent = visible(state.title || "untitled");
  byId("facts").textContent = state.state ? state.state.replaceAll("_", " ") : "";
  byId("mode").replaceChildren(...MODES.filter((mode) => mode !== "unsafe").map((mode) => new Option(mode, mode)));
  setMode(state.mode || "ask");
  byId("mode").disabled = !state.mode;
  for (const name of ["prompt", "send"]) byId(name).disabled = Boolean(state.headless);
  byId("cancel").disabled = !state.running;
  watch(id);
  await list();
  byId("prompt").focus();
}

const say = doing(async () => {
  const text = byId("prompt").value.trim();
  if (!text || !session) return;
  const opened = byId("mode").disabled;
  await call("POST", `/api/sessions/${session}/prompts`, { content: text });
  byId("prompt").value = "";
  if (opened) byId("mode").disabled = false;
  await list();
});

// --- beginning --------------------------------------------------------------------------------------------

function showLogin(text) {
  if (watching) watching.abort();
  byId("house").hidden = true;
  byId("login").hidden = false;
  byId("login-problem").textContent = text || "";
  byId("token").focus();
}

async function begin() {
  byId("login").hidden = true;
  byId("house").hidden = false;
  kept.set(token);
  await list();
}

byId("login").onsubmit = doing(async () => { token = byId("token").value.trim(); byId("token").value = ""; await begin(); });
byId("new").onclick = doing(async () => { const made = await call("POST", "/api/sessions", {}); await enter(made.id); });
byId("mode").onchange = doing(async () => {
  const { mode } = await call("PATCH", `/api/sessions/${session}`, { mode: byId("mode").value }).catch(async (error) => {
    setMode((await call("GET", `/api/sessions/${session}`)).mode);
    throw error;
  });
  setMode(mode);
});
byId("cancel").onclick = doing(() => call("POST", `/api/sessions/${session}/cancel`));
byId("say").onsubmit = say;
byId("prompt").onkeydown = (event) => { if (event.key === "Enter" && !event.shiftKey && !event.isComposing) say(event); };
setInterval(() => { if (!byId("house").hidden && !document.hidden) list().catch(() => {}); }, 5000);

const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) history.replaceState(null, "", location.pathname);
token = given || kept.get();
if (token) doing(begin)(); else showLogin("");
