//! Commands to a browser.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::Stdio,
    time::Duration,
};

use axum::body::Body;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{Method, Request};
use http_body_util::BodyExt as _;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};

/// A busy machine starts a browser slowly.
const START: Duration = Duration::from_mins(2);
/// How long the modules of a page may take to load.
const MODULES: Duration = Duration::from_secs(20);
/// How often a page is loaded.
const LOADS: usize = 5;
/// How long a condition in the page may take to become true. Guests on a busy host start slowly.
const CONDITION: Duration = Duration::from_mins(3);
/// How long a script may take, so longer than any condition.
const SCRIPT: Duration = Duration::from_mins(4);
/// How often a click is tried on an element that the page replaces at that moment.
const CLICKS: usize = 20;
/// Errors of `WebDriver` after which the element is looked up again.
const REPLACED: [&str; 2] = ["stale element reference", "no such element"];
const READY: &str = "was started successfully on port ";

/// A running browser; dropping it ends it.
#[derive(Debug)]
pub struct Browser {
    driver: SocketAddr,
    client: Client<HttpConnector, Body>,
    session: String,
    _child: Child,
    profile: TempDir,
}

impl Browser {
    /// Starts a browser with an empty profile and opens a page.
    pub async fn open(url: &str) -> Self {
        let mut child = Command::new("chromedriver")
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("start chromedriver: install it with scripts/setup.sh test");
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let port = tokio::time::timeout(START, async {
            while let Some(line) = lines.next_line().await.unwrap() {
                if let Some((_, port)) = line.split_once(READY) {
                    return port.trim_end_matches('.').parse::<u16>().unwrap();
                }
            }
            panic!("chromedriver ended");
        });
        let driver = SocketAddr::from(([127, 0, 0, 1], port.await.unwrap()));
        let profile = TempDir::new().unwrap();
        let mut browser = Self {
            driver,
            client: Client::builder(TokioExecutor::new()).build_http(),
            session: String::new(),
            _child: child,
            profile,
        };
        browser.start().await;
        browser
            .call(Method::POST, "/url", json!({"url": url}))
            .await;
        // Suites beside this one make and remove interfaces of the host; the browser then drops requests, also
        // those for the modules of a page.
        for _ in 0..LOADS {
            if browser.has_started().await {
                return browser;
            }
            browser.call(Method::POST, "/refresh", json!({})).await;
        }
        panic!("{url} was loaded {LOADS} times and did not start");
    }

    /// Whether the modules of the page were loaded: the first of them names this button.
    async fn has_started(&self) -> bool {
        let limit = MODULES.as_millis();
        let script = format!(
            "const done = arguments[0];
             const end = performance.now() + {limit};
             const ask = () => {{
                 if (document.getElementById('theme')?.textContent) done(true);
                 else if (performance.now() < end) requestAnimationFrame(ask);
                 else done(false);
             }};
             ask();"
        );
        let body = json!({"script": script, "args": []});
        self.call(Method::POST, "/execute/async", body).await == true
    }

    async fn start(&mut self) {
        let profile = self.profile.path().display();
        let arguments = [
            "--headless=new".to_owned(),
            // Tests run as root, in containers with little shared memory.
            "--no-sandbox".to_owned(),
            "--disable-dev-shm-usage".to_owned(),
            "--disable-gpu".to_owned(),
            "--no-first-run".to_owned(),
            "--disable-background-networking".to_owned(),
            "--window-size=1100,900".to_owned(),
            format!("--user-data-dir={profile}"),
        ];
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": {"args": arguments},
            "goog:loggingPrefs": {"browser": "ALL"},
            "timeouts": {"script": u64::try_from(SCRIPT.as_millis()).unwrap()},
        }}});
        let made = tokio::time::timeout(START, self.request(Method::POST, "/session", &wanted));
        let made = made.await.expect("the browser starts");
        made["sessionId"]
            .as_str()
            .unwrap()
            .clone_into(&mut self.session);
    }

    /// A `WebDriver` command; its result.
    async fn request(&self, method: Method, path: &str, body: &Value) -> Value {
        let answer = self.try_request(method, path, body).await;
        answer.unwrap_or_else(|error| {
            let failure = format!("{path} {body}: {}", error["message"]);
            panic!("{}", failure.lines().next().unwrap_or_default())
        })
    }

    /// A `WebDriver` command; its result or its error.
    async fn try_request(&self, method: Method, path: &str, body: &Value) -> Result<Value, Value> {
        let sent = if method == Method::POST {
            body.to_string()
        } else {
            String::new()
        };
        let request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.driver))
            .header("content-type", "application/json")
            .body(Body::from(sent))
            .unwrap();
        let response = self.client.request(request).await.unwrap();
        let is_ok = response.status().is_success();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let mut answer: Value = serde_json::from_slice(&bytes).unwrap();
        let value = answer["value"].take();
        if is_ok { Ok(value) } else { Err(value) }
    }

    async fn call(&self, method: Method, path: &str, body: Value) -> Value {
        let path = format!("/session/{}{path}", self.session);
        self.request(method, &path, &body).await
    }

    /// Shows another view of the page.
    pub async fn view(&self, hash: &str) {
        self.run(&format!("location.hash = {};", json!(hash))).await;
    }

    /// Runs statements of JavaScript; the value they return.
    pub async fn run(&self, script: &str) -> Value {
        let body = json!({"script": script, "args": []});
        self.call(Method::POST, "/execute/sync", body).await
    }

    /// Waits until an expression of JavaScript is true (it is evaluated for every frame), and returns its
    /// value. Fails with the text of the page.
    pub async fn until(&self, expression: &str) -> Value {
        let limit = CONDITION.as_millis();
        let script = format!(
            "const done = arguments[0];
             const end = performance.now() + {limit};
             const ask = () => {{
                 const value = ({expression});
                 if (value) done({{ value }});
                 else if (performance.now() < end) requestAnimationFrame(ask);
                 else done({{ page: document.body.innerText }});
             }};
             ask();"
        );
        let body = json!({"script": script, "args": []});
        let mut found = self.call(Method::POST, "/execute/async", body).await;
        if let Some(page) = found["page"].as_str() {
            panic!("never true: {expression}\nThe page:\n{page}");
        }
        found["value"].take()
    }

    /// Runs the body of an async function; the value it returns.
    pub async fn run_async(&self, script: &str) -> Value {
        let script = format!(
            "const done = arguments[0];
             (async () => {{ {script} }})().then(done, (error) => done({{ failed: String(error) }}));"
        );
        let body = json!({"script": script, "args": []});
        self.call(Method::POST, "/execute/async", body).await
    }

    /// Waits until the text of an element contains this.
    pub async fn until_text(&self, selector: &str, text: &str) {
        let expression = format!(
            "document.querySelector({})?.textContent.includes({})",
            json!(selector),
            json!(text)
        );
        self.until(&expression).await;
    }

    async fn element(&self, selector: &str) -> String {
        let is_there = format!("document.querySelector({}) !== null", json!(selector));
        self.until(&is_there).await;
        let body = json!({"using": "css selector", "value": selector});
        let found = self.call(Method::POST, "/element", body).await;
        id(&found)
    }

    /// Clicks on an enabled element. A page that follows its objects may replace it just before.
    pub async fn click(&self, selector: &str) {
        let is_ready = format!(
            "document.querySelector({})?.matches(':enabled, a, summary')",
            json!(selector)
        );
        let mut error = Value::Null;
        for _ in 0..CLICKS {
            self.until(&is_ready).await;
            match self.try_click(selector).await {
                Ok(_) => return,
                Err(failure) => error = failure,
            }
            let is_replaced = REPLACED.iter().any(|known| error["error"] == *known);
            assert!(is_replaced, "click on {selector}: {error}");
        }
        panic!("click on {selector}: {error}");
    }

    async fn try_click(&self, selector: &str) -> Result<Value, Value> {
        let session = format!("/session/{}", self.session);
        let body = json!({"using": "css selector", "value": selector});
        let path = format!("{session}/element");
        let found = self.try_request(Method::POST, &path, &body).await?;
        let path = format!("{session}/element/{}/click", id(&found));
        self.try_request(Method::POST, &path, &json!({})).await
    }

    /// Replaces the text of a field by typing.
    pub async fn fill(&self, selector: &str, text: &str) {
        let id = self.element(selector).await;
        self.call(Method::POST, &format!("/element/{id}/clear"), json!({}))
            .await;
        let body = json!({"text": text});
        self.call(Method::POST, &format!("/element/{id}/value"), body)
            .await;
    }

    /// Chooses a file in a field for files.
    pub async fn choose(&self, selector: &str, file: &Path) {
        let id = self.element(selector).await;
        let body = json!({"text": file.to_str().unwrap()});
        self.call(Method::POST, &format!("/element/{id}/value"), body)
            .await;
    }

    /// Presses and releases keys, one after the other, wherever the focus is.
    pub async fn press(&self, keys: &[&str]) {
        let press = |key: &&str| {
            [
                json!({"type": "keyDown", "value": key}),
                json!({"type": "keyUp", "value": key}),
            ]
        };
        let actions: Vec<Value> = keys.iter().flat_map(press).collect();
        let body = json!({"actions": [{"type": "key", "id": "keys", "actions": actions}]});
        self.call(Method::POST, "/actions", body).await;
    }

    /// Presses a key while another is held.
    pub async fn press_with(&self, held: &str, key: &str) {
        let actions = [
            ("keyDown", held),
            ("keyDown", key),
            ("keyUp", key),
            ("keyUp", held),
        ]
        .map(|(kind, value)| json!({"type": kind, "value": value}));
        let body = json!({"actions": [{"type": "key", "id": "keys", "actions": actions}]});
        self.call(Method::POST, "/actions", body).await;
    }

    pub async fn resize(&self, width: u32, height: u32) {
        let body = json!({"width": width, "height": height});
        self.call(Method::POST, "/window/rect", body).await;
    }

    /// Makes a picture of the window, a PNG. With `FERROVIRT_SCREENSHOTS=FOLDER` it is kept for the guide.
    pub async fn picture(&self, name: &str) {
        let picture = self.call(Method::GET, "/screenshot", Value::Null).await;
        let picture = STANDARD.decode(picture.as_str().unwrap()).unwrap();
        assert!(picture.starts_with(b"\x89PNG"));
        if let Some(folder) = std::env::var_os("FERROVIRT_SCREENSHOTS") {
            let file = Path::new(&folder).join(format!("web-console-{name}.png"));
            fs::write(file, picture).unwrap();
        }
    }

    /// Fails if the page logged an error: one of a script, or a violation of the policy. `expected` are
    /// parts of errors that the test causes.
    pub async fn check_log(&self, expected: &[&str]) {
        let entries = self
            .call(Method::POST, "/se/log", json!({"type": "browser"}))
            .await;
        for entry in entries.as_array().unwrap() {
            let text = entry["message"].as_str().unwrap();
            // Suites beside this one make and remove interfaces of the host; the browser then drops requests.
            let is_expected = text.contains("net::ERR_NETWORK_CHANGED")
                || expected.iter().any(|part| text.contains(part));
            assert!(entry["level"] != "SEVERE" || is_expected, "{text}");
        }
    }
}

/// The identifier of a found element.
fn id(found: &Value) -> String {
    let (_, id) = found.as_object().unwrap().iter().next().unwrap();
    id.as_str().unwrap().to_owned()
}

/// Ends the browser, also when a test fails; the driver alone would leave it behind.
impl Drop for Browser {
    fn drop(&mut self) {
        let Ok(mut stream) = TcpStream::connect(self.driver) else {
            return;
        };
        let limited = stream.set_read_timeout(Some(Duration::from_secs(10)));
        let request = format!(
            "DELETE /session/{} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
            self.session, self.driver
        );
        let sent = limited.and_then(|()| stream.write_all(request.as_bytes()));
        if sent.is_ok() {
            let mut answer = Vec::new();
            // A time-out is no failure of the test.
            drop(stream.read_to_end(&mut answer));
        }
    }
}
