// Draws the maps, moves through them by pointer and keyboard, sorts the runs and shows where a number comes from.
// All numbers come ready from Python; nothing is computed here but differences of two means.
(() => {
  'use strict';
  const data = JSON.parse(document.getElementById('data').textContent);
  const find = (selector, root = document) => root.querySelector(selector);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  document.documentElement.classList.add('js');

  function make(tag, attributes = {}, ...children) {
    const isSvg = ['svg', 'rect', 'circle'].includes(tag);
    const node = isSvg ? document.createElementNS('http://www.w3.org/2000/svg', tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  }

  function number(value, digits, signed = false) {
    const decimals = { minimumFractionDigits: digits, maximumFractionDigits: digits };
    const text = Math.abs(value).toLocaleString('en-US', decimals);
    const zero = !/[1-9]/.test(text);
    return (value < 0 && !zero ? '−' : signed && !zero ? '+' : '') + text;
  }

  const plain = (value) => String(Number(value.toPrecision(6))).replace('-', '−');

  // The answer: one comparison at a time

  const choice = find('#comparison');
  function showComparison() {
    for (const part of all('.comparison')) part.hidden = part.dataset.comparison !== choice.value;
  }
  if (choice) {
    choice.addEventListener('change', showComparison);
    showComparison();
  }

  // Maps

  const state = { env: null, quantity: null, cell: null, label: null };
  const readout = find('#readout');
  const current = () => data.envs[state.env].shown[state.quantity];

  function colour(table, value, low, high) {
    const share = high > low ? (value - low) / (high - low) : 0.5;
    return table[Math.round(Math.min(Math.max(share, 0), 1) * (table.length - 1))];
  }

  function gradient(table) {
    return `linear-gradient(to right, ${table.filter((_, index) => index % 15 === 0).join(', ')})`;
  }

  function map(label, name, values, table, low, high) {
    const env = data.envs[state.env];
    const described = `${name}: ${values.length} contexts. Arrow keys move from one to the next.`;
    const picture = make('svg', {
      viewBox: `0 0 ${env.columns} ${env.rows}`, preserveAspectRatio: 'none', tabindex: 0, role: 'application',
      'aria-roledescription': 'map', 'aria-label': described, 'aria-describedby': 'readout', 'data-label': label,
    });
    picture.style.aspectRatio = `${env.columns} / ${Math.max(env.rows, env.columns / 5)}`;
    values.forEach((value, cell) => {
      const place = { x: env.column[cell], y: env.row[cell], width: 1, height: 1, 'data-cell': cell };
      const fill = value === null ? { class: 'unfinished' } : { fill: colour(table, value, low, high) };
      picture.append(make('rect', { ...place, ...fill }));
    });
    const runs = Object.values(current().runs[label] ?? {});
    values.forEach((value, cell) => { // a small square where some of the seeds, but not all, have no value
      if (value === null || runs.every((run) => run[cell] !== null)) return;
      const place = { x: env.column[cell] + 0.28, y: env.row[cell] + 0.28, width: 0.44, height: 0.44 };
      picture.append(make('rect', { ...place, class: 'partly' }));
    });
    if (env.box) {
      const [x, y, width, height] = env.box;
      for (const kind of ['shade', 'ind']) picture.append(make('rect', { x, y, width, height, class: kind }));
    }
    return picture;
  }

  function axes(picture) {
    const env = data.envs[state.env];
    const title = (index) => env.features[index] + (env.units[index] ? ` [${env.units[index]}]` : '');
    const ends = (index) => env.ends[index].map(plain);
    const across = make('div', { class: 'axis across' });
    across.append(...[ends(0)[0], title(0), ends(0)[1]].map((text) => make('span', {}, text)));
    if (env.features.length < 2) return [picture, across];
    const up = make('div', { class: 'axis up' });
    up.append(...[ends(1)[1], title(1), ends(1)[0]].map((text) => make('span', {}, text)));
    return [up, picture, across];
  }

  function drawMaps() {
    const env = data.envs[state.env];
    const shown = current();
    const table = shown.less ? data.colours.less : data.colours.more;
    const maps = find('#map-panels');
    maps.replaceChildren();
    for (const [label, name] of Object.entries(data.names)) {
      const about = shown.about[label] ?? { text: '' };
      const caption = make('figcaption', {}, make('b', {}, name), about.text);
      if (about.warning) caption.append(' ', make('span', { class: 'warn' }, about.warning));
      const values = shown.means[label];
      const body = values && env.columns
        ? axes(map(label, name, values, table, ...shown.limits))
        : [make('div', { class: 'none gap' }, values ? 'no plane to draw: see the picture' : env.gaps[label])];
      maps.append(make('figure', { class: 'map' }, caption, ...body));
    }
    const [low, high] = shown.limits.map((value) => number(value, shown.digits));
    find('#map-low').textContent = (shown.clipped[0] ? '≤ ' : '') + low;
    find('#map-high').textContent = (shown.clipped[1] ? '≥ ' : '') + high;
    find('#map-bar').style.background = gradient(table);
    for (const text of all('#maps .quantity')) text.textContent = shown.title;
    find('#map-note').textContent = shown.note;
    find('#map-note').hidden = !shown.note;
    for (const picture of all('#map-static > *')) {
      picture.hidden = Boolean(env.columns) || picture.dataset.env !== state.env;
    }
    find('#map-legend').hidden = !env.columns;
  }

  function difference() {
    const { means } = current();
    const [first, second] = [find('#first').value, find('#second').value];
    const [a, b] = [means[first], means[second]];
    const minus = (x, y) => (x === null || y === null ? null : x - y);
    return { first, second, values: a && b ? a.map((value, cell) => minus(value, b[cell])) : null };
  }

  function drawDifference() {
    const env = data.envs[state.env];
    const shown = current();
    const panel = find('#difference-panel');
    const { first, second, values } = difference();
    const pair = shown.pairs[first]?.[second];
    const drawn = Boolean(values && pair && env.columns);
    panel.replaceChildren();
    find('#difference-legend').hidden = !drawn;
    find('#difference-text').textContent = first === second
      ? 'Choose two different methods.'
      : pair ? pair.text : `No difference to show: ${[first, second].filter((label) => !shown.means[label])
        .map((label) => `${data.names[label]} ${env.gaps[label]}`).join('; ')}.`;
    if (!drawn) return;
    const name = `${data.names[first]} − ${data.names[second]}`;
    const gains = values.map((value) => (value === null || !shown.less ? value : -value)); // green is better
    panel.append(...axes(map(null, name, gains, data.colours.difference, -pair.limit, pair.limit)));
    const end = number(pair.limit, shown.digits);
    find('#difference-low').textContent = `${data.names[second]} better, ≥ ${end}`;
    find('#difference-high').textContent = `${data.names[first]} better, ≥ ${end}`;
    find('#difference-bar').style.background = gradient(data.colours.difference);
    moveCursor();
  }

  function moveCursor() {
    const env = data.envs[state.env];
    all('#maps .cursor').forEach((cursor) => cursor.remove());
    if (state.cell === null || !env.columns) return;
    const place = { x: env.column[state.cell], y: env.row[state.cell], width: 1, height: 1 };
    for (const picture of all('#maps .map svg')) picture.append(make('rect', { ...place, class: 'cursor' }));
  }

  function select(cell, label) {
    const env = data.envs[state.env];
    const shown = current();
    state.cell = cell;
    if (label) state.label = label;
    moveCursor();
    const context = env.features.map((name, index) => {
      const unit = env.units[index];
      return `${name} = ${plain(env.contexts[cell][index])}${unit ? ` ${unit}` : ''}`;
    });
    const region = env.ind[cell] ? 'in distribution (IND)' : 'out of distribution (OOD)';
    const head = make('p', {}, make('b', {}, context.join(', ')), ` · ${region}`);
    const { first, second, values } = difference();
    for (const { title, unit, digits, values: found } of env.givens) {
      head.append(` · ${title} ${number(found[cell], digits)}${unit ? ` ${unit}` : ''}`);
    }
    if (values && first !== second) {
      const gap = values[cell] === null ? env.missing.both : number(values[cell], shown.digits, true);
      head.append(` · ${data.names[first]} − ${data.names[second]}: `, make('b', { id: 'readout-difference' }, gap));
    }
    const rows = make('tbody');
    const told = (value, digits) => (value === null ? env.missing.one : number(value, digits));
    for (const [other, name] of Object.entries(data.names)) {
      if (!shown.means[other]) continue;
      const show = (value) => told(value, shown.digits);
      const runs = Object.entries(shown.runs[other]);
      const seeds = runs.map(([seed, found]) => `${seed}: ${show(found[cell])}`);
      const [mean, sem] = [shown.means[other][cell], shown.sems[other][cell]];
      const count = runs.filter(([, found]) => found[cell] !== null).length;
      const spread = mean === null ? '' : sem === null ? ` (n = ${count})` : ` ± ${show(sem)} s.e.m.`;
      const others = Object.entries(env.shown).filter(([key]) => key !== state.quantity)
        .map(([, also]) => `${also.title}: ${told(also.means[other][cell], also.digits)}`);
      const here = { 'data-label': other, class: other === state.label ? 'here' : '' };
      const texts = [show(mean) + spread, [...others, `seed ${seeds.join(' · ')}`].join('; ')];
      rows.append(make('tr', here, make('td', { class: 'left' }, name), ...texts.map((text) => make('td', {}, text))));
    }
    readout.replaceChildren(head, make('table', {}, rows));
  }

  function labelOf(picture) {
    return picture.dataset.label !== 'null' ? picture.dataset.label : find('#first').value;
  }

  function pointed(event) {
    const cell = event.target.dataset?.cell;
    if (cell !== undefined) select(Number(cell), labelOf(event.target.parentNode));
  }

  const STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  function pressed(event) {
    const step = STEPS[event.key];
    const picture = event.target.closest('.map svg');
    if (!step || !picture) return;
    event.preventDefault();
    const env = data.envs[state.env];
    const clamp = (value, count) => Math.min(Math.max(value, 0), count - 1);
    const column = clamp(env.column[state.cell] + step[0], env.columns);
    const row = clamp(env.row[state.cell] + step[1], env.rows);
    select(env.column.findIndex((value, cell) => value === column && env.row[cell] === row), labelOf(picture));
  }

  function focused(event) {
    const picture = event.target.closest?.('.map svg');
    if (!picture || event.target !== picture || !picture.matches(':focus-visible')) return;
    const env = data.envs[state.env];
    const middle = env.column.findIndex((value, cell) => value === env.columns >> 1 && env.row[cell] === env.rows >> 1);
    select(state.cell ?? middle, labelOf(picture));
  }

  function showEnv(env) {
    const quantities = Object.entries(data.envs[env].shown);
    const kept = quantities.some(([key]) => key === state.quantity) ? state.quantity : quantities[0][0];
    Object.assign(state, { env, quantity: kept, cell: null, label: null });
    readout.textContent = 'Point at a cell, tap it, or move with the arrow keys: context, value and spread appear here.';
    find('#difference-env').textContent = env;
    const choices = quantities.map(([key, { title }]) => {
      const input = make('input', { type: 'radio', name: 'quantity', value: key });
      input.checked = key === kept;
      return make('label', {}, input, title);
    });
    find('#quantity-choice').replaceChildren(make('legend', {}, 'Shown'), ...choices);
    find('#quantity-choice').hidden = choices.length < 2;
    drawMaps();
    drawDifference();
  }

  function showQuantity(quantity) {
    state.quantity = quantity;
    drawMaps();
    drawDifference();
    if (state.cell !== null) select(state.cell);
  }

  // From a verdict to its map: the link itself goes there, and back is the browser's
  function showPair(link) {
    const { env, first, second } = JSON.parse(link.dataset.map);
    for (const input of all('#env-choice input')) input.checked = input.value === env;
    find('#first').value = first;
    find('#second').value = second;
    showEnv(env);
  }

  const chosen = find('#env-choice :checked');
  if (chosen) {
    find('#env-choice').addEventListener('change', (event) => showEnv(event.target.value));
    find('#quantity-choice').addEventListener('change', (event) => showQuantity(event.target.value));
    for (const id of ['#first', '#second']) {
      find(id).addEventListener('change', () => { drawDifference(); if (state.cell !== null) select(state.cell); });
    }
    for (const kind of ['pointerover', 'click']) find('#maps').addEventListener(kind, pointed);
    find('#maps').addEventListener('keydown', pressed);
    find('#maps').addEventListener('focusin', focused);
    for (const link of all('a[data-map]')) {
      link.setAttribute('href', '#difference');
      link.addEventListener('click', () => showPair(link));
    }
    showEnv(chosen.value);
  }

  // Tables of runs and of cars: sorting and searching

  function sort(header) {
    const sorted = header.closest('table');
    const column = [...header.parentNode.children].indexOf(header);
    const down = header.getAttribute('aria-sort') === 'ascending';
    const key = (row) => row.children[column].dataset.value ?? row.children[column].textContent;
    const sign = down ? -1 : 1;
    const compare = (a, b) => {
      const [x, y] = [key(a), key(b)];
      if (!x || !y) return (x ? 0 : 1) - (y ? 0 : 1); // what is not there comes last, either way
      return sign * (Number.isNaN(Number(x)) || Number.isNaN(Number(y)) ? x.localeCompare(y) : x - y);
    };
    all('thead th', sorted).forEach((other) => other.removeAttribute('aria-sort'));
    header.setAttribute('aria-sort', down ? 'descending' : 'ascending');
    const body = find('tbody', sorted);
    body.append(...[...body.rows].sort(compare));
  }
  all('th button').forEach((button) => button.addEventListener('click', () => sort(button.closest('th'))));

  for (const field of all('input[type="search"]')) {
    const rows = all(`#${field.dataset.table} tbody tr`);
    field.addEventListener('input', () => {
      const words = field.value.toLowerCase().split(/\s+/);
      const texts = (row) => [...row.children].slice(0, 2).map((cell) => cell.textContent).join(' ').toLowerCase();
      for (const row of rows) row.hidden = !words.every((word) => texts(row).includes(word));
      const left = rows.filter((row) => !row.hidden).length;
      find(`#${field.dataset.table}-count`).textContent = `${left} of ${rows.length} cars`;
    });
  }

  // Tables and pictures that are wider than the window: which edges have more behind them

  for (const scroller of all('.scroller')) {
    const box = scroller.firstElementChild;
    const mark = () => {
      scroller.classList.toggle('more-left', box.scrollLeft > 1);
      scroller.classList.toggle('more-right', box.scrollLeft + box.clientWidth < box.scrollWidth - 1);
    };
    box.addEventListener('scroll', mark, { passive: true });
    const observer = new ResizeObserver(mark);
    observer.observe(box);
    observer.observe(box.firstElementChild);
  }

  // The rows that a number comes from

  const table = find('#run-table');
  let origin = null;
  function clear() {
    all('tr.from', table).forEach((row) => row.classList.remove('from'));
    find('#from').hidden = true;
  }
  function trace(link) {
    clear();
    const { env, labels } = JSON.parse(link.dataset.from);
    const belongs = (row) => (!env || row.dataset.env === env) && labels.includes(row.dataset.label);
    const rows = [...find('tbody', table).rows].filter(belongs);
    rows.forEach((row) => row.classList.add('from'));
    find('tbody', table).prepend(...rows);
    all('th', table).forEach((header) => header.removeAttribute('aria-sort'));
    const names = labels.map((label) => data.names[label]).join(' and ');
    const count = rows.length === 1 ? '1 run' : `${rows.length} runs`;
    find('#from-text').textContent = `${count} of ${names}${env ? ` in ${env}` : ', all environments'}, marked below.`;
    find('#from').hidden = false;
    origin = link;
    find('#runs').scrollIntoView();
    find('#from button').focus({ preventScroll: true });
  }
  document.addEventListener('click', (event) => {
    const link = event.target.closest?.('a[data-from]');
    if (!link) return;
    event.preventDefault();
    trace(link);
  });
  find('#from button')?.addEventListener('click', () => { clear(); origin.focus(); });
})();
