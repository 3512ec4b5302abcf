// The conversation, on the page and in this tab's memory, so that neither a reload nor a lost GPU loses it.
const key = 'doppler-chat';
const reasons = {end: '', stop: '', max_tokens: 'cut at the longest answer', context: 'the context is full', interrupted: 'stopped'};

function describe({ids, timing, stopReason}) {
  const parts = [`${ids.length} tokens`];
  if (timing.decodeTokS > 0) parts.push(`${timing.decodeTokS.toFixed(1)} tok/s`);
  parts.push(`first token after ${timing.firstTokenMs < 10000 ? `${timing.firstTokenMs.toFixed(0)} ms` : `${(timing.firstTokenMs / 1000).toFixed(1)} s`}`);
  if (reasons[stopReason]) parts.push(reasons[stopReason]);
  return parts.join(' · ');
}

export class ChatLog {
  constructor(list) {
    this.list = list;
    this.messages = [];
    this.busy = null;
  }

  row(role, content, note = '') {
    const item = document.createElement('li');
    item.className = role;
    const text = document.createElement('span');
    text.className = 'text';
    text.textContent = content;
    const small = document.createElement('small');
    small.textContent = note;
    small.hidden = !note;
    item.append(text, small);
    this.list.append(item);
    item.scrollIntoView({block: 'end'});
    return {item, text, small};
  }

  save() {
    sessionStorage.setItem(key, JSON.stringify(this.messages));
  }

  restore() {
    try {
      this.messages = JSON.parse(sessionStorage.getItem(key) ?? '[]');
    } catch {
      this.messages = [];
    }
    for (const {role, content, note} of this.messages) this.row(role, content, note);
  }

  clear() {
    this.messages = [];
    this.list.replaceChildren();
    this.save();
  }

  addUser(content) {
    this.messages.push({role: 'user', content});
    this.row('user', content);
    this.save();
  }

  /** An answer that is being written. */
  begin() {
    const {item, text, small} = this.row('assistant', '');
    const message = {role: 'assistant', content: '', note: ''};
    this.messages.push(message);
    item.classList.add('busy');
    const scroller = this.list.parentElement;
    const end = (note) => {
      item.classList.remove('busy');
      message.note = note;
      small.textContent = note;
      small.hidden = !note;
      this.busy = null;
      if (this.messages.includes(message)) this.save();
    };
    this.busy = {
      add: (piece) => {
        const atEnd = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 60;
        message.content += piece;
        text.textContent = message.content;
        if (atEnd) scroller.scrollTop = scroller.scrollHeight;
      },
      finish: (result) => end(describe(result)),
      fail: () => {
        end(message.content ? 'broken off' : '');
        if (message.content) return;
        // Nothing came: the question stays, to be asked again.
        item.remove();
        this.messages = this.messages.filter((other) => other !== message);
        this.save();
      },
    };
    return this.busy;
  }

  settle() {
    this.busy?.fail();
  }
}
